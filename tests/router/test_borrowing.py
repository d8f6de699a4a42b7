"""Decode workers are full and prefill workers idle: with `router.borrow: when-cheaper` these decode as well."""

import asyncio
import json
import re
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


async def stream(client: httpx.AsyncClient, url: str, number: int) -> str:
    """The whole text."""
    text = ""
    asked = body(number) | {"stream": True}
    async with client.stream("POST", f"{url}/v1/completions", headers=HEADERS, json=asked) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                text += json.loads(line[6:])["choices"][0]["text"]
    return text


async def together(url: str) -> list[str]:
    async with httpx.AsyncClient(timeout=30) as client:
        return await asyncio.gather(*(stream(client, url, number) for number in range(REQUESTS)))


def served(directory: Path, borrow: Literal["never", "when-cheaper"]) -> str:
    """The router's metrics after streams that begin at once; their texts are right."""
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
        for number, text in enumerate(found):
            alone = httpx.post(
                f"{job.engine_url(Role.DECODE)}/v1/completions",
                headers={"Authorization": f"Bearer {ENGINE_KEY}"},
                json=body(number),
                timeout=30,
            )
            assert text == alone.json()["choices"][0]["text"]
        return httpx.get(f"{job.url}/metrics", timeout=10).text
    finally:
        job.end()


def test_an_idle_prefill_pool_decodes_where_decode_is_overloaded(tmp_path: Path) -> None:
    assert "hpcserve_router_whole_requests_total{" not in served(tmp_path / "own", "never")
    borrowed = served(tmp_path / "borrowed", "when-cheaper")
    found = re.findall(r'^hpcserve_router_whole_requests_total\{reason="decode_load"\} (\S+)$', borrowed, re.MULTILINE)
    assert [float(count) >= 2 for count in found] == [True], found
