"""More than the decode worker can take: nobody's request fails, and the extra work has an end."""

import asyncio
import json
import socket
import time
from collections import Counter
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hpcserve.engines import read_counters
from hpcserve.nouns import Role
from tests.router.processes import BODY, ENGINE_KEY, HEADERS, Job, until

REQUESTS = 48
SLOW = ("--max-num-seqs", "2", "--sim-decode-ms-per-token", "20")
LONG: dict[str, Any] = BODY | {"max_tokens": 30, "ignore_eos": True}


def text_of(answer: httpx.Response, *, stream: bool) -> str:
    if not stream:
        text: str = answer.json()["choices"][0]["text"]
        return text
    events = [each.removeprefix("data: ") for each in answer.text.split("\n\n") if each]
    assert events[-1] == "[DONE]"
    return "".join(choice["text"] for each in events[:-1] for choice in json.loads(each)["choices"])


def test_an_overload_fails_nobody_and_is_over_when_it_is_over(job: Job) -> None:
    """A queue of seven seconds before a limit of two."""
    job.start_engine(Role.PREFILL, "p1", *SLOW)
    job.start_engine(Role.DECODE, "d1", *SLOW)
    job.start_router()
    until(job.ready)

    async def ask(client: httpx.AsyncClient, number: int) -> tuple[bool, httpx.Response]:
        stream = number % 2 == 0
        body = LONG | {"prompt": f"river {number}", "stream": stream}
        return stream, await client.post(f"{job.url}/v1/completions", headers=HEADERS, json=body, timeout=120)

    async def ask_all() -> list[tuple[bool, httpx.Response]]:
        async with httpx.AsyncClient(limits=httpx.Limits(max_connections=REQUESTS)) as client:
            return await asyncio.gather(*(ask(client, number) for number in range(REQUESTS)))

    answers = asyncio.run(ask_all())
    assert [answer.status_code for _, answer in answers] == [200] * REQUESTS
    routes = Counter(answer.headers["x-hpcserve-route"] for _, answer in answers)
    assert routes["prefill-0"] > 0, "it was no overload"
    # the prefill worker's memory tells what each should have been
    url = job.engine_url(Role.PREFILL)
    for number in range(0, REQUESTS, 5):
        stream, answer = answers[number]
        right = httpx.post(
            f"{url}/v1/completions",
            headers={"Authorization": f"Bearer {ENGINE_KEY}"},
            json=LONG | {"prompt": f"river {number}"},
            timeout=20,
        )
        assert text_of(answer, stream=stream) == text_of(right, stream=False)
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(httpx.get(f"{job.url}/metrics").text)
        for sample in family.samples
    }
    retries = sum(value for (name, *_), value in samples.items() if name == "hpcserve_router_retries_total")
    assert 0 < samples["hpcserve_router_lease_drops_total",] <= 2 * REQUESTS
    assert retries <= 2 * REQUESTS
    assert samples["hpcserve_router_in_flight_requests",] == 0
    assert sum(value for (name, *_), value in samples.items() if name == "hpcserve_router_worker_in_flight") == 0
    # what was dropped is not computed to its end
    engines = [read_counters(httpx.get(f"{job.engine_url(role)}/metrics").text) for role in (Role.PREFILL, Role.DECODE)]
    made = sum(engine.generation_tokens for engine in engines)
    assert made < 2 * REQUESTS * LONG["max_tokens"] + 3000
    # and when it is over, KV is handed over again
    until(job.ready, within_s=30)
    assert job.ask().headers["x-hpcserve-route"] == "prefill-0>decode-0"


def test_the_openai_clients_retries_carry_requests_over_restarts(job: Job) -> None:
    openai = pytest.importorskip("openai")
    job.start_engine(Role.PREFILL, "p1")
    decode = job.start_engine(Role.DECODE, "d1")
    with socket.create_server(("127.0.0.1", job.port)) as door:  # the agent keeps it open
        router = job.start_router(door=door)
        until(job.ready)
        client = openai.OpenAI(base_url=f"{job.url}/v1", api_key="sk-job")

        def ask() -> str:
            said: str = client.completions.create(**BODY).choices[0].text
            return said

        right = ask()
        # the only decode worker is gone: prefill workers serve whole, at the first try
        decode.kill()
        decode.wait()
        answer: Any = job.ask()
        assert (answer.status_code, answer.headers["x-hpcserve-route"]) == (200, "prefill-0")
        assert ask() == right
        (job.directory / "endpoints" / "decode-0.json").unlink()
        time.sleep(1.5)
        assert ask() == right
        # the router is gone and comes back as its agent would bring it
        router.kill()
        router.wait()
        job.start_router(door=door)
        assert ask() == right
    # the service is ending or nobody is there: the refusal says when to come again, as that client reads it
    (job.directory / "endpoints" / "prefill-0.json").unlink()
    refused = until(lambda: answer if (answer := job.ask()).status_code == 503 else None)
    assert refused.headers["retry-after"] == "2"
    assert refused.json()["error"]["code"] == "no_worker"
