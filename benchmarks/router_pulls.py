"""What putting pulls in turn is worth: mean TTFT with `router.pulls_in_turn` and without, on processes of this host.

    python -m benchmarks.router_pulls [--load 0.85] [--requests 150] [--rounds 2]

One simulated prefill and one simulated decode worker behind a link that its pulls share evenly (as UCX's do over one
TCP link): a pull alone takes about 60 ms, a prefill half of that. Poisson arrivals at `--load` of what the link
carries, the same for both ways, which take turns. Each way first serves some requests, so that transfer times are
reported. Prints JSON: TTFT in ms by way and round, and the ratio of the means.
"""

import argparse
import asyncio
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from hpcserve.nouns import Role, RouterSettings
from hpcserve.wire import encode_yaml
from tests import synthetic
from tests.router import processes
from tests.router.processes import BODY, HEADERS, Job, until

_TOKENS = 600
_KV_BYTES_PER_TOKEN = 23_040
_PULL_S = 0.06
_GB_PER_S = _TOKENS * _KV_BYTES_PER_TOKEN / _PULL_S / 1e9
_PREFILL_MS_PER_TOKEN = 0.05
_WARM = 12
_REPORTED_WITHIN_S = 12.0


def _start(job: Job, *, in_turn: bool) -> None:
    service = synthetic.service(engine="sim", kv_lease_s=4, router=RouterSettings(pulls_in_turn=in_turn))
    (job.directory / "service.yaml").write_text(encode_yaml(service))
    ports: list[int] = []
    free_port = processes.free_port

    def noted() -> int:
        ports.append(free_port())
        return ports[-1]

    processes.free_port = noted
    try:
        job.start_engine(Role.PREFILL, "p1", "--sim-prefill-ms-per-token", str(_PREFILL_MS_PER_TOKEN))
    finally:
        processes.free_port = free_port
    rate = json.dumps({f"127.0.0.1:{ports[1]}": _GB_PER_S})
    job.start_engine(Role.DECODE, "d1", "--sim-gb-per-s", rate)
    job.start_router()
    until(job.ready, within_s=60)


async def _ttft_ms(client: httpx.AsyncClient, url: str, number: int) -> float:
    prompt = f"{number} " + "river " * (_TOKENS // 2)  # a word and a space are two tokens of the simulated engine
    body = BODY | {"prompt": prompt, "stream": True, "max_tokens": 2}
    began_s = time.perf_counter()
    async with client.stream("POST", f"{url}/v1/completions", headers=HEADERS, json=body, timeout=60) as answer:
        if answer.status_code != httpx.codes.OK:
            raise RuntimeError(f"status {answer.status_code}")
        first_ms = 0.0
        async for _ in answer.aiter_bytes():
            first_ms = first_ms or (time.perf_counter() - began_s) * 1000
    return first_ms


async def _load(url: str, *, gaps_s: list[float], first: int) -> list[float]:
    async with httpx.AsyncClient(limits=httpx.Limits(max_connections=None)) as client:
        tasks = []
        for number, gap_s in enumerate(gaps_s, start=first):
            await asyncio.sleep(gap_s)
            tasks.append(asyncio.create_task(_ttft_ms(client, url, number)))
        return list(await asyncio.gather(*tasks))


def _correction(url: str) -> float | None:
    for line in httpx.get(f"{url}/metrics").text.splitlines():
        if line.startswith("hpcserve_router_path_correction{"):
            return float(line.rpartition(" ")[2])
    return None


def _one(*, in_turn: bool, gaps_s: list[float], numbers: Iterator[int]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        try:
            _start(job, in_turn=in_turn)
            asyncio.run(_load(job.url, gaps_s=[0.1] * _WARM, first=next(numbers) * 10_000))
            until(lambda: _correction(job.url), within_s=_REPORTED_WITHIN_S)
            found = asyncio.run(_load(job.url, gaps_s=gaps_s, first=next(numbers) * 10_000))
            quantiles = statistics.quantiles(found, n=20)
            return {
                "in_turn": in_turn,
                "mean_ms": round(statistics.mean(found), 1),
                "p50_ms": round(statistics.median(found), 1),
                "p95_ms": round(quantiles[-1], 1),
                "n": len(found),
                "path_correction": _correction(job.url),
            }
        finally:
            job.end()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", type=float, default=0.85)
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--rounds", type=int, default=2)
    words = parser.parse_args()
    numbers = itertools.count(1)
    rows = []
    for number in range(words.rounds):
        dice = random.Random(number)  # noqa: S311 - arrivals
        gaps_s = [dice.expovariate(words.load / _PULL_S) for _ in range(words.requests)]
        order = (False, True) if number % 2 else (True, False)
        rows += [_one(in_turn=in_turn, gaps_s=gaps_s, numbers=numbers) for in_turn in order]
    means = {way: statistics.mean(row["mean_ms"] for row in rows if row["in_turn"] == way) for way in (True, False)}
    said = {"load": words.load, "rows": rows, "mean_in_turn_against_not": round(means[True] / means[False], 3)}
    sys.stdout.write(json.dumps(said, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
