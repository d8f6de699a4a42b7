"""The router for half an hour before workers that die, stand still and return: right answers, and no growth.

    HPCSERVE_ROUTER_SOAK_S=75 .venv/bin/pytest -m soak tests/router/test_soak.py

needs neither Slurm nor vLLM. It prints what it counted.
"""

import asyncio
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from tests.router.asking import Client, Tally
from tests.router.crew import LEASE_S, Crew
from tests.router.processes import Job, until
from tests.router.watched import Watched

SOAK_S = float(os.environ.get("HPCSERVE_ROUTER_SOAK_S", "1800"))
SEED = int(os.environ.get("HPCSERVE_SOAK_SEED", "1"))
CLIENTS = 32
LOOK_EVERY_S = 2.0
WORDS = ("--sim-decode-ms-per-token", "1")
MOST_GROWTH_KIB = 8 << 10
MOST_MORE_FILES = 24
"""The clients' number is fixed; warm connections to engines come and go with the load."""
LEAST_RATE_PER_S = 2

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SOAK_S + 1800)]


async def watch(router: Watched, tally: Tally, *, until_s: float) -> None:
    """Look at the router, and tell of it once a minute."""
    told_s = time.monotonic()
    while time.monotonic() < until_s:
        await asyncio.sleep(LOOK_EVERY_S)
        look = router.look()
        if look.at_s - told_s > 60:
            told_s = look.at_s
            sys.stdout.write(
                f"{tally.requests} requests, {look.rss_kib} KiB, {look.files} files, {len(tally.faults)} faults\n"
            )
            sys.stdout.flush()


async def soak(job: Job) -> tuple[Crew, Tally, Watched, float]:
    crew = Crew(job, prefill=2, decode=3, seed=SEED, words=WORDS)
    async with asyncio.TaskGroup() as group:
        heart = group.create_task(job.beat())
        await crew.start()
        process = job.start_router()
        await asyncio.to_thread(until, job.ready, within_s=600)
        router, tally = Watched(process.pid), Tally()
        router.look()
        start_s = time.monotonic()
        until_s = start_s + SOAK_S
        async with asyncio.TaskGroup() as work:
            work.create_task(crew.disturb(process, until_s=until_s))
            work.create_task(watch(router, tally, until_s=until_s))
            for number in range(CLIENTS):
                client = Client(job.port, name=f"s{SEED}-{number}", tally=tally, lost=crew.lost)
                work.create_task(client.run(until_s=until_s))
        took_s = time.monotonic() - start_s
        await asyncio.to_thread(until, job.ready, within_s=600)
        assert process.poll() is None
        last = Tally()  # all are well again: nothing may fail any more
        client = Client(job.port, name="last", tally=last, lost=lambda _worker, _since_s: False)
        await client.run(until_s=time.monotonic() + 2.0)
        assert last.ends.keys() == {"right"}, last.faults
        tally.attempts += last.attempts
        await asyncio.to_thread(until, lambda: in_flight(job) == 0, within_s=60)
        heart.cancel()
    return crew, tally, router, took_s


def series(job: Job, name: str) -> list[float]:
    text = httpx.get(f"{job.url}/metrics", timeout=20).text
    return [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    ]


def in_flight(job: Job) -> float:
    names = ("in_flight_requests", "worker_in_flight", "worker_transfers", "link_waiting")
    return sum(sum(series(job, f"hpcserve_router_{name}")) for name in names)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path, lease_s=LEASE_S)
    try:
        yield made
    finally:
        made.end()


def test_right_answers_for_half_an_hour(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():  # what is printed is seen at once
        crew, tally, router, took_s = uvloop.run(soak(job))
        first, last = router.warm()[0], router.warm()[-1]
        sys.stdout.write(
            f"\nrouter soak: seed {SEED}, {took_s:.0f} s, {tally.requests} requests, {dict(tally.ends)}; "
            f"sent again {dict(tally.again)}; done to workers {dict(crew.done)}; warm router "
            f"{first.rss_kib} -> {last.rss_kib} KiB ({router.growth_kib():+.0f}), "
            f"{first.files} -> {last.files} files ({router.more_files():+.0f})\n"
        )
    assert not tally.faults, "\n".join(tally.faults[:40])
    assert tally.ends["right"] > LEAST_RATE_PER_S * took_s
    assert crew.done["kill"] > took_s / 60
    assert router.growth_kib() < MOST_GROWTH_KIB
    assert router.more_files() < MOST_MORE_FILES
    assert sum(series(job, "hpcserve_router_requests_total")) == tally.attempts
    log = job.directory / "router.log"
    with log.open(errors="replace") as lines:
        assert not [line for line in lines if "Traceback" in line]
    log.unlink()  # a line for each request
