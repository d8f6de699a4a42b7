"""One request after another: the time of each KV transfer by itself."""

import asyncio
import random
import time

import httpx

from hpcserve.bench.completions import client_for, random_prompt, stream_completion
from hpcserve.bench.counters import Tally, read_tally
from hpcserve.bench.host import BusyLimits
from hpcserve.bench.record import Point
from hpcserve.bench.stretch import Offered, measure
from hpcserve.bench.target import Target
from hpcserve.nouns import Run, Sample

__all__ = ["run_alone"]

_GENERATOR = "hpcserve, one request after another"

_COUNTED_WITHIN_S = 5.0
"""How long the counter of a transfer may lag behind the end of its answer; vLLM publishes it with its next step."""

_POLL_S = 0.02
_WARM_UPS_PER_PAIR = 2
_MS_PER_S = 1e3


def run_alone(*, point: Point, target: Target, limits: BusyLimits) -> Run:
    """Measure `point.requests` distinct prompts, one at a time, after as many warm-ups as the pairs' handshakes need.

    The first transfer between two workers pays for their handshake. Raises ServiceError where a worker's counters
    cannot be read; a request that fails makes the run invalid, and is kept.
    """
    return asyncio.run(_run_alone(point, target, limits))


async def _run_alone(point: Point, target: Target, limits: BusyLimits) -> Run:
    source = random.Random(f"{point.sweep} {point.seed} {point.id}")  # noqa: S311 - prompts, not secrets
    async with client_for(url=target.url, api_key=target.api_key) as client:
        for _ in range(_WARM_UPS_PER_PAIR * max(len(target.plan.paths), 1)):
            await _one(client, target, source, origin_s=time.perf_counter())

        async def offer(first: Tally) -> Offered:
            origin_s, last = time.perf_counter(), first
            samples: list[Sample] = []
            each_ms: list[float] = []
            for _ in range(point.requests):
                samples.append(await _one(client, target, source, origin_s=origin_s))
                now = await _counted(client, target, last)
                if now.count > last.count:
                    each_ms.append((now.seconds - last.seconds) * _MS_PER_S)
                last = now
            return Offered(
                generator=_GENERATOR,
                samples=samples,
                duration_s=time.perf_counter() - origin_s,
                each_transfer_ms=each_ms,
            )

        return await measure(point=point, target=target, limits=limits, client=client, offer=offer)


async def _one(client: httpx.AsyncClient, target: Target, source: random.Random, *, origin_s: float) -> Sample:
    workload = target.service.workload
    return await stream_completion(
        client,
        model=target.service.served_name,
        prompt=random_prompt(source, workload.input_tokens),
        output_tokens=workload.output_tokens,
        origin_s=origin_s,
    )


async def _counted(client: httpx.AsyncClient, target: Target, last: Tally) -> Tally:
    """The tally once the request's transfer is in it, or as it is when that takes too long."""
    end_s = time.monotonic() + (_COUNTED_WITHIN_S if target.plan.paths else 0.0)
    while True:
        now = await read_tally(client, target.pullers)
        if now.count > last.count or time.monotonic() >= end_s:
            return now
        await asyncio.sleep(_POLL_S)
