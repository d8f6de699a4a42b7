"""The points of a sweep, and which of them are still to be measured."""

import hashlib
from collections.abc import Iterator, Mapping

from hpcserve.bench import Point
from hpcserve.errors import HpcserveError
from hpcserve.nouns import Run, Service, Site, Sweep, SweepPlacement
from hpcserve.wire import encode_record

__all__ = ["CONFIG", "missing_points", "points_of"]

CONFIG = "config_sha256"
"""Name under which a run's environment keeps the hash of what was measured."""

_SEEDS_PER_RATE = 1000
"""Rates and repetitions have prompts of their own: the same ones again would be found in the prefix cache."""


def points_of(sweep: Sweep, placement: SweepPlacement, *, service: Service, site: Site) -> Iterator[Point]:
    """Each repetition alone first, then at every rate. The same prompts meet every placement."""
    for repetition in range(1, sweep.repetitions + 1):
        suffix = "" if repetition == 1 else f".r{repetition}"
        steps: list[tuple[str, float | None, int]] = [("alone", None, sweep.alone_requests)]
        steps += [(f"rate-{rate.request_rate:.12g}", rate.request_rate, rate.requests) for rate in sweep.rates]
        for place, (name, rate, requests) in enumerate(steps):
            seed = sweep.seed + place * _SEEDS_PER_RATE + repetition - 1
            parts = (encode_record(service), encode_record(site), encode_record(placement))
            digest = hashlib.sha256(b"".join(parts) + f"{rate} {requests} {seed}".encode()).hexdigest()
            yield Point(
                id=f"{placement.name}.{name}{suffix}",
                sweep=sweep.name,
                placement=placement.name,
                repetition=repetition,
                kind="alone" if rate is None else "rate",
                request_rate=rate,
                requests=requests,
                seed=seed,
                environment={CONFIG: digest},
            )


def missing_points(points: Iterator[Point], runs: Mapping[str, Run], *, retry_invalid: bool) -> tuple[Point, ...]:
    """Points without a run, or with an invalid one where those are to be measured again.

    Raises HpcserveError for a run of the same id that measured something else: it would be lost.
    """
    missing = []
    for point in points:
        run = runs.get(point.id)
        if run is not None and run.environment.get(CONFIG) != point.environment[CONFIG]:
            raise HpcserveError(
                f"run {point.id} there was measured with another service, site, placement or load",
                remedy="choose another --results, or move that folder away",
            )
        if run is None or (retry_invalid and not run.validity.valid):
            missing.append(point)
    return tuple(missing)
