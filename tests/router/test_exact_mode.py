"""`router.kv: events` from end to end: a router's process, simulated engines that publish their KV events."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from hpcserve.nouns import Role, RouterSettings
from hpcserve.wire import encode_yaml
from tests import synthetic
from tests.router.processes import ENGINE_KEY, HEADERS, Job, until
from tests.tiny_model import write_tokenizer

BLOCK_TOKENS = synthetic.handoff().block_size


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    model = tmp_path / "models" / "tiny"
    model.mkdir(parents=True)
    write_tokenizer(model)
    (tmp_path / "job").mkdir()
    made = Job(tmp_path / "job")
    site = synthetic.site()
    paths = site.paths.model_copy(update={"models": str(model.parent)})
    (made.directory / "site.yaml").write_text(encode_yaml(site.model_copy(update={"paths": paths})))
    service = synthetic.service(engine="sim", kv_lease_s=4, router=RouterSettings(kv="events"))
    (made.directory / "service.yaml").write_text(encode_yaml(service))
    try:
        made.start_engine(Role.PREFILL, "p1", model=str(model), events=True)
        made.start_engine(Role.DECODE, "d1", model=str(model), events=True)
        made.start_router()
        yield made
    finally:
        made.end()


def figure(url: str, name: str, **labels: str) -> float:
    """A metric's value; 0 where it is not there yet."""
    text = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {ENGINE_KEY}"}, timeout=10).text
    for line in text.splitlines():
        found = re.fullmatch(rf"{re.escape(name)}(?:\{{(.*)\}})? (\S+)", line)
        if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
            return float(found[2])
    return 0.0


def has_more(figures: Callable[[], list[float]], before: list[float]) -> bool:
    """Whether each of them has grown."""
    return all(now > then for now, then in zip(figures(), before, strict=True))


def test_what_is_predicted_is_what_the_engines_find(job: Job) -> None:
    until(job.ready, within_s=40)
    until(lambda: figure(job.url, "hpcserve_router_kv_exact") == 1.0, within_s=40)
    prefill = job.engine_url(Role.PREFILL)
    until(lambda: figure(prefill, "vllm:prefix_cache_hits_total") > 0)  # the router's probe: one prefix, twice
    messages = [{"role": "user", "content": "Name three rivers and say where each of them ends. " * 6}]

    def batches() -> list[float]:
        return [
            figure(job.url, "hpcserve_router_kv_event_batches_total", worker=f"{role}-0")
            for role in ("prefill", "decode")
        ]

    for turn in range(3):
        before = batches()
        hits_before = figure(prefill, "vllm:prefix_cache_hits_total")
        predicted_before = figure(job.url, "hpcserve_router_kv_predicted_tokens_total", worker="prefill-0")
        asked = {"model": "tiny", "messages": messages, "max_tokens": 6, "temperature": 0}
        answer = httpx.post(f"{job.url}/v1/chat/completions", headers=HEADERS, json=asked, timeout=20)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-hpcserve-route"] == "prefill-0>decode-0"
        hits = figure(prefill, "vllm:prefix_cache_hits_total") - hits_before
        predicted = figure(job.url, "hpcserve_router_kv_predicted_tokens_total", worker="prefill-0") - predicted_before
        if turn:  # of its new text only the beginning was known when it was asked for
            assert 0 < hits - 2 * BLOCK_TOKENS <= predicted <= hits
        else:
            assert predicted == hits == 0
        until(partial(has_more, batches, before))
        said = answer.json()["choices"][0]["message"]
        messages += [{"role": "assistant", "content": said["content"]}, {"role": "user", "content": f"Next {turn}."}]
    assert figure(job.url, "hpcserve_router_kv_index_blocks") > 0
