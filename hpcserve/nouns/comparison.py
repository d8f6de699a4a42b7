"""`Comparison`: the shapes that a plan considered, and what each would give."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Name, Noun, Positive, PositiveInt, Text
from hpcserve.nouns.plan import Plan
from hpcserve.nouns.report import Goodput, Percentiles
from hpcserve.nouns.service import Pool, Slo, Workload

__all__ = ["Alternative", "Comparison"]

Share = Annotated[float, Field(ge=0, le=1)]


class Alternative(Noun):
    """One shape: mode, parallelism and counts, placed and simulated under the SLO."""

    name: Text
    mode: Literal["disaggregated", "aggregated"]
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    gpus: PositiveInt
    as_written: bool
    """Whether these are the service's own pools."""
    chosen: bool
    quick_requests_per_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """By formulas, which choose what is simulated."""
    goodput: Goodput | None = None
    """Simulated; None where the shape was not."""
    goodput_per_gpu: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """requests/s; 0 where even the lowest rate missed the SLO."""
    at_requests_per_s: Positive | None = None
    """The rate that the figures below are of: the highest that met the SLO, else the lowest that was tried."""
    attainment: Share | None = None
    attainment_at_load: Share | None = None
    """At the load that is expected, where the service says it."""
    ttft_ms: Percentiles | None = None
    tpot_ms: Percentiles | None = None
    transfer_ms: Percentiles | None = None
    """From the end of prefill to the KV's being there, waits and shared links included."""
    slowest_transfer_ms: Positive | None = None
    """One typical request alone on the slowest path; None where nothing moves."""
    links: tuple[Text, ...] = ()
    """Kinds of paths from prefill to decode, and the busiest link with its utilisation."""
    remarks: tuple[Text, ...] = ()
    """What was not known, or why it was not simulated."""


class Comparison(Noun):
    """All shapes of one plan, best first, those that were not simulated last."""

    schema_: Annotated[Literal["hpcserve.comparison/1"], Field(alias="schema")] = "hpcserve.comparison/1"
    service: Text
    site: Name
    slo: Slo
    workload: Workload
    gpus: PositiveInt
    """That were asked for, or that the service's own pools take."""
    seed: int
    sources: tuple[Text, ...]
    """Where the times of the workers come from."""
    left_out: tuple[Text, ...] = ()
    """Parallelism that could not be judged, and why."""
    alternatives: tuple[Alternative, ...]
    plan: Plan
    """The plan that was chosen, with the verdict."""
