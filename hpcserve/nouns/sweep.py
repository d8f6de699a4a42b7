"""`Sweep`: a grid of placements and request rates."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Duration, Figure, Name, Noun, PositiveInt, Text
from hpcserve.nouns.service import Distance

__all__ = ["RatePoint", "Sweep", "SweepPlacement"]


class SweepPlacement(Noun):
    """One placement to measure: a distance between prefill and decode, or the aggregated baseline."""

    name: Name
    mode: Literal["disaggregated", "aggregated"]
    distance: Distance = Distance.BEST


class RatePoint(Noun):
    """One offered rate: Poisson arrivals at `request_rate` requests/s until `requests` were sent."""

    request_rate: Figure
    requests: PositiveInt


class Sweep(Noun):
    """A sweep: every placement of `placements` at every rate of `rates`, `repetitions` times."""

    schema_: Annotated[Literal["hpcserve.sweep/1"], Field(alias="schema")]
    name: Name
    service: Text
    """Path of the service YAML, relative to this file."""
    placements: Annotated[tuple[SweepPlacement, ...], Field(min_length=1)]
    rates: Annotated[tuple[RatePoint, ...], Field(min_length=1)]
    alone_requests: Annotated[int, Field(ge=8)] = 8
    """Sequential requests with distinct prompts, measured first, one transfer at a time."""
    repetitions: PositiveInt = 1
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """What random generators take: 0 to 2^31 - 1."""
    time: Duration
    """Slurm time limit of the sweep's job."""
