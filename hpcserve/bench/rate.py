"""Poisson arrivals at a rate, from a load generator."""

import asyncio
from typing import Protocol

from hpcserve.bench.completions import client_for
from hpcserve.bench.counters import Tally
from hpcserve.bench.host import BusyLimits
from hpcserve.bench.record import Point
from hpcserve.bench.stretch import Offered, measure
from hpcserve.bench.target import Target
from hpcserve.nouns import Run

__all__ = ["Generator", "Offered", "run_rate"]


class Generator(Protocol):
    """Offers a load: open loop, prompts with the workload's shared prefix, a seed that decides everything."""

    async def offer(self, *, point: Point, target: Target) -> Offered:
        """Send the point's requests, and come back when the last has been answered. Failures stand in the result."""
        ...


def run_rate(*, point: Point, target: Target, generator: Generator, limits: BusyLimits) -> Run:
    """Measure one offered rate. Raises ServiceError where a worker's counters cannot be read."""
    return asyncio.run(_run_rate(point, target, generator, limits))


async def _run_rate(point: Point, target: Target, generator: Generator, limits: BusyLimits) -> Run:
    async with client_for(url=target.url, api_key=target.api_key) as client:

        async def offer(_: Tally) -> Offered:
            return await generator.offer(point=point, target=target)

        return await measure(point=point, target=target, limits=limits, client=client, offer=offer)
