"""What surrounds every measured stretch: counters, workers and host before and after, and the judgement."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import httpx

from hpcserve.bench.counters import Tally, read_tally
from hpcserve.bench.host import BusyLimits, cpu_times, own_ticks, pressure, quiet_share, snapshot
from hpcserve.bench.record import Point, load_of, now_utc, run_of
from hpcserve.bench.target import Target, generations
from hpcserve.bench.validity import Evidence, judge
from hpcserve.errors import ServiceError
from hpcserve.nouns import Run, Sample, Transfers

__all__ = ["Offered", "measure"]

_AFTERMATH_S = 3.0
"""Others' work that began during the run goes on for longer than this after it; what ends sooner is a coincidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """What a load generator did and saw. `generator` is its name and version, `argv` what was run, if a program was."""

    generator: str
    samples: Sequence[Sample]
    duration_s: float
    argv: tuple[str, ...] = ()
    warm_ups: int = 0
    """Requests within the stretch that the samples do not hold."""
    each_transfer_ms: Sequence[float] = ()
    dispatch_delays_ms: Sequence[float] = ()
    achieved_rate: float | None = None
    failures: Sequence[str] = ()


async def measure(
    *,
    point: Point,
    target: Target,
    limits: BusyLimits,
    client: httpx.AsyncClient,
    offer: Callable[[Tally], Awaitable[Offered]],
) -> Run:
    """Run `offer`, which is given the tally before it, between two looks at everything, and judge.

    Raises ServiceError where a worker's counters cannot be read before the stretch; afterwards that is a reason.
    """
    environment, started_utc = snapshot(), now_utc()
    others_before = await asyncio.to_thread(quiet_share, limits)
    workers, first = generations(target.directory), await read_tally(client, target.pullers)
    own, cpu = own_ticks(target.directory), cpu_times()
    try:
        offered = await offer(first)
        moved = await read_tally(client, target.pullers) - first
    except ServiceError as error:
        offered, moved = Offered(generator="unknown", samples=(), duration_s=0.0, failures=(str(error),)), Tally()
    then = cpu_times()
    steal, worked = then.steal_share_since(cpu), own_ticks(target.directory) - own
    others_during = max(0, then.busy_since(cpu) - worked) / max(1, then.total - cpu.total)
    others_after = await asyncio.to_thread(quiet_share, limits, settle_s=_AFTERMATH_S)
    load = load_of(point, target.service, generator=offered.generator, argv=offered.argv)
    backwards = ("a counter of KV transfers went backwards",) if min(moved.count, moved.bytes, moved.failed) < 0 else ()
    transfers = None
    if target.pullers and not backwards:
        transfers = Transfers(
            count=moved.count,
            bytes=moved.bytes,
            failed=moved.failed,
            seconds=max(moved.seconds, 0.0),
            each_ms=tuple(offered.each_transfer_ms),
        )
    evidence = Evidence(
        load=load,
        slo=target.service.slo,
        samples=offered.samples,
        transfers=transfers,
        warm_ups=offered.warm_ups,
        cached_tokens=moved.cached_tokens,
        kv_bytes_per_token=target.kv_bytes_per_token,
        block_tokens=target.block_tokens,
        generations_before=workers,
        generations_after=generations(target.directory),
        others_before=others_before,
        others_during=others_during,
        others_after=others_after,
        steal=steal,
        dispatch_delays_ms=offered.dispatch_delays_ms,
        achieved_rate=offered.achieved_rate,
        failures=(*offered.failures, *backwards),
    )
    return run_of(
        point=point,
        service=target.service,
        site=target.site,
        plan=target.plan,
        load=load,
        simulated=target.simulated,
        started_utc=started_utc,
        environment={
            **environment,
            "engines": ", ".join(target.engines),
            "cpu_pressure_after": pressure(),
            "others_share": f"{others_before:.2f} before, {others_during:.2f} during, {others_after:.2f} after",
            "steal_share": f"{steal:.3f}",
            "warm_up_requests": str(offered.warm_ups),
        },
        samples=tuple(offered.samples),
        duration_s=offered.duration_s,
        transfers=transfers,
        predicted_transfer_ms=target.predicted_transfer_ms,
        validity=judge(evidence, limits),
    )
