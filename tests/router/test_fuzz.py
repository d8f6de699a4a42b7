"""Bytes that no client should send, before the router: none of them ends it, hangs it, or comes to an engine.

    HPCSERVE_FUZZ_INPUTS=5000 HPCSERVE_FUZZ_SEED=2 .venv/bin/pytest -m soak tests/router/test_fuzz.py

A fault shows the input; HPCSERVE_FUZZ_FIRST=NUMBER and HPCSERVE_FUZZ_INPUTS=1 throw it again.
"""

import asyncio
import os
import sys
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.router.fake_engine import tokens_of
from tests.router.guard import Guard
from tests.router.mangle import Input, make
from tests.router.processes import Job, until
from tests.router.rig import Rig
from tests.router.target import Target
from tests.router.throwing import throw

INPUTS = int(os.environ.get("HPCSERVE_FUZZ_INPUTS", "80000"))
FIRST = int(os.environ.get("HPCSERVE_FUZZ_FIRST", "0"))
SEED = int(os.environ.get("HPCSERVE_FUZZ_SEED", "1"))
AT_ONCE = 24
BATCH = 1000
CORPUS = 400
MOST_GROWTH_KIB = 16 << 10
MOST_MORE_FILES = 8
"""Connections to engines that are still warm."""


def test_a_corpus_of_bad_bytes() -> None:
    async def run() -> None:
        async with Rig() as rig:
            guard = Guard(rig.engines)
            faults: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: faults.append(context))
            inputs = [each for each in (make(0, number) for number in range(CORPUS)) if each.end != "hold"]
            found = await throw_all(rig.port, inputs)
            await rig.settle()
            assert not found, "\n".join(found[:5])
            assert not guard.found, "\n".join(guard.found[:5])
            assert not faults
            assert guard.calls > CORPUS / 4

    asyncio.run(run())


async def throw_all(port: int, inputs: list[Input]) -> list[str]:
    """Throw them, many at once; what was wrong."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(thrown: Input) -> str:
        async with turns:
            return await throw(port, thrown)

    return [wrong for wrong in await asyncio.gather(*map(one, inputs)) if wrong]


async def fuzz(job: Job) -> str:
    target, held = Target(job), list[asyncio.Task[str]]()
    async with AsyncExitStack() as stack:
        router = await target.start(stack)
        before = router.look()
        start_s = time.monotonic()
        for first in range(FIRST, FIRST + INPUTS, BATCH):
            inputs = [make(SEED, number) for number in range(first, min(first + BATCH, FIRST + INPUTS))]
            held += [asyncio.create_task(throw(job.port, each)) for each in inputs if each.end == "hold"]
            found = await throw_all(job.port, [each for each in inputs if each.end != "hold"])
            assert not found, "\n".join(found[:5])
            answer = await asyncio.to_thread(job.ask, prompt="canary")
            assert answer.json()["choices"][0]["text"] == "".join(tokens_of('"canary"', 6))
            target.check(first + BATCH)
            look = router.look()
            sys.stdout.write(f"{first + len(inputs)} inputs, {look.rss_kib} KiB, {look.files} files\n")
            sys.stdout.flush()
        took_s = time.monotonic() - start_s
        found = [wrong for wrong in await asyncio.gather(*held) if wrong]
        assert not found, "\n".join(found[:5])
        await asyncio.to_thread(until, lambda: router.look().files <= before.files + MOST_MORE_FILES)
        target.check(FIRST + INPUTS)
    warm = router.warm()
    if INPUTS >= 10 * BATCH:
        assert router.growth_kib() < MOST_GROWTH_KIB, [look.rss_kib for look in router.looks]
    return (
        f"\nfuzz: seed {SEED}, {INPUTS} inputs in {took_s:.0f} s, {len(held)} held open to the router's own limits, "
        f"{target.guard.calls} legs; warm router {warm[0].rss_kib} -> {warm[-1].rss_kib} KiB, "
        f"files {before.files} -> {router.looks[-1].files}\n"
    )


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_bad_bytes_by_the_thousand(job: Job, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():  # what is printed is seen at once
        sys.stdout.write(asyncio.run(fuzz(job)))
