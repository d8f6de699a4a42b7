"""A small open-loop generator for simulated engines, which have no `vllm bench serve` beside them."""

import asyncio
import itertools
import random
import time
from collections.abc import Sequence

from hpcserve.bench.completions import client_for, random_prompt, stream_completion
from hpcserve.bench.record import Point
from hpcserve.bench.stretch import Offered
from hpcserve.bench.target import Target
from hpcserve.nouns import Role, Sample

__all__ = ["PoissonGenerator", "arrivals_s"]

_GENERATOR = "hpcserve's Poisson arrivals, for simulated engines"
_MS_PER_S = 1e3


def arrivals_s(source: random.Random, *, requests: int, rate: float) -> tuple[float, ...]:
    """Arrival times of a Poisson process, scaled so that the last is at requests ÷ rate: the rate is exactly offered.

    `vllm bench serve` scales likewise, so that a short run does not offer another rate by chance.
    """
    times = tuple(itertools.accumulate(source.expovariate(rate) for _ in range(requests)))
    return tuple(moment * requests / rate / times[-1] for moment in times)


class PoissonGenerator:
    """Sends prompts of the workload's shape at Poisson arrivals, whatever is still unanswered."""

    async def offer(self, *, point: Point, target: Target) -> Offered:
        """See `Generator`. One warm-up per worker that computes prompts brings the shared prefix into its cache."""
        if point.request_rate is None:
            raise ValueError(f"{point.id} has no rate")
        source = random.Random(f"{point.sweep} {point.seed}")  # noqa: S311 - prompts, not secrets
        prefix = random_prompt(source, target.service.workload.cached_prefix_tokens)
        own_tokens = target.service.workload.input_tokens - len(prefix)
        prompts = [prefix + random_prompt(source, own_tokens) for _ in range(point.requests)]
        arrivals = arrivals_s(source, requests=point.requests, rate=point.request_rate)
        warm_ups = sum(worker.role != Role.DECODE for worker in target.plan.workers)
        async with client_for(url=target.url, api_key=target.api_key) as client:

            async def one(prompt: Sequence[int], origin_s: float) -> Sample:
                return await stream_completion(
                    client,
                    model=target.service.served_name,
                    prompt=prompt,
                    output_tokens=target.service.workload.output_tokens,
                    origin_s=origin_s,
                )

            await asyncio.gather(*(one(prompts[0], 0.0) for _ in range(warm_ups)))
            origin_s = time.perf_counter()

            async def at(moment_s: float, prompt: Sequence[int]) -> Sample:
                await asyncio.sleep(max(0.0, origin_s + moment_s - time.perf_counter()))
                return await one(prompt, origin_s)

            samples = await asyncio.gather(*(at(*each) for each in zip(arrivals, prompts, strict=True)))
            duration_s = time.perf_counter() - origin_s
        return Offered(
            generator=_GENERATOR,
            samples=samples,
            duration_s=duration_s,
            warm_ups=warm_ups,
            dispatch_delays_ms=[
                (sample.start_s - moment) * _MS_PER_S for sample, moment in zip(samples, arrivals, strict=True)
            ],
            achieved_rate=point.requests / max(sample.start_s for sample in samples),
        )
