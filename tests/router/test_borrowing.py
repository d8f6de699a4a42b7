"""Decode workers are full and prefill workers idle: with `router.borrow: when-cheaper` these decode as well."""

import asyncio
import json
import statistics
import time
from pathlib import Path
from typing import Literal

import httpx

from hpcserve.nouns import Role, RouterSettings
from hpcserve.wire import encode_yaml
from tests import synthetic
from tests.router.processes import BODY, ENGINE_KEY, HEADERS, Job, until

REQUESTS = 16
SEATS = ("--max-num-seqs", "2", "--sim-decode-ms-per-token", "10")
"""Two streams at a time: the eighth pair of them waits for seven times eight tokens."""


def body(number: int) -> dict[str, object]:
    return BODY | {"prompt": f"Stream {number} of many", "max_tokens": 8, "ignore_eos": True}


async def stream(client: httpx.AsyncClient, url: str, number: int) -> tuple[float, str]:
    """(seconds to the first token, the whole text)."""
    start_s, first_s, text = time.monotonic(), 0.0, ""
    asked = body(number) | {"stream": True}
    async with client.stream("POST", f"{url}/v1/completions", headers=HEADERS, json=asked) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                first_s = first_s or time.monotonic() - start_s
                text += json.loads(line[6:])["choices"][0]["text"]
    return first_s, text


async def together(url: str) -> list[tuple[float, str]]:
    async with httpx.AsyncClient(timeout=30) as client:
        return await asyncio.gather(*(stream(client, url, number) for number in range(REQUESTS)))


def served(directory: Path, borrow: Literal["never", "when-cheaper"]) -> tuple[float, str]:
    """Mean time to first token, and the router's metrics, of streams that begin at once; their texts are right."""
    directory.mkdir()
    job = Job(directory)
    settings = RouterSettings(borrow=borrow, pulls_in_turn=False)
    service = synthetic.service(engine="sim", kv_lease_s=4, router=settings)
    (job.directory / "service.yaml").write_text(encode_yaml(service))
    try:
        job.start_engine(Role.PREFILL, "p1", *SEATS)
        job.start_engine(Role.DECODE, "d1", *SEATS)
        job.start_router()
        until(job.ready, within_s=40)
        found = asyncio.run(together(job.url))
        for number, (_, text) in enumerate(found):
            alone = httpx.post(
                f"{job.engine_url(Role.DECODE)}/v1/completions",
                headers={"Authorization": f"Bearer {ENGINE_KEY}"},
                json=body(number),
                timeout=30,
            )
            assert text == alone.json()["choices"][0]["text"]
        return statistics.mean(first_s for first_s, _ in found), httpx.get(f"{job.url}/metrics").text
    finally:
        job.end()


def test_an_idle_prefill_pool_decodes_where_decode_is_overloaded(tmp_path: Path) -> None:
    own_s, own = served(tmp_path / "own", "never")
    borrowed_s, borrowed = served(tmp_path / "borrowed", "when-cheaper")
    assert "hpcserve_router_whole_requests_total{" not in own
    assert 'hpcserve_router_whole_requests_total{reason="decode_load"}' in borrowed
    assert borrowed_s < 0.8 * own_s  # twice the seats: half the wait, about
