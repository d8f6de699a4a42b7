"""`Report`: what the runs of one sweep say together."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field

from hpcserve.nouns.base import Name, Noun, Positive, PositiveInt, Text
from hpcserve.nouns.plan import Plan
from hpcserve.nouns.service import Slo
from hpcserve.nouns.site import Site

__all__ = ["Goodput", "InvalidRun", "Percentiles", "PlacementResult", "RateResult", "Report", "TransferResult"]

_NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]
_Share = Annotated[float, Field(ge=0, le=1)]


class Percentiles(Noun):
    """Of a time in ms over all requests that have one; None where none has."""

    p50: _NonNegative | None
    p90: _NonNegative | None
    p99: _NonNegative | None


class RateResult(Noun):
    """All valid runs of one placement at one offered rate."""

    request_rate: Positive
    repetitions: PositiveInt
    requests: PositiveInt
    good: _Count
    """Requests whose TTFT and TPOT both met the SLO."""
    attainment: _Share
    attainment_low: _Share
    attainment_high: _Share
    """Wilson's 95 % interval."""
    good_per_s: _NonNegative
    """Good request rate: good requests ÷ the runs' durations."""
    good_per_s_min: _NonNegative
    good_per_s_max: _NonNegative
    """Spread over the repetitions."""
    ttft_ms: Percentiles
    tpot_ms: Percentiles


class TransferResult(Noun):
    """Predicted against measured KV transfer time. `load` is `alone` or an offered rate in requests/s.

    Alone, each transfer's own time is known; under load only the mean (`typical_ms`) of each run is, so that minimum
    and maximum are those of the repetitions' means.
    """

    load: Literal["alone"] | Positive
    transfers: PositiveInt
    predicted_ms: Positive | None
    typical_ms: _NonNegative
    """Median alone, mean under load."""
    min_ms: _NonNegative
    max_ms: _NonNegative
    ratio: _NonNegative | None
    """Measured ÷ predicted."""


class Goodput(Noun):
    """The highest offered rate whose attainment reaches the target: the first crossing, interpolated.

    `below`: even the lowest rate misses the target; `above`: even the highest reaches it; `request_rate` is then that
    rate. `unknown`: no valid run.
    """

    bound: Literal["crossing", "below", "above", "unknown"]
    request_rate: Positive | None

    @classmethod
    def first_crossing(cls, points: Iterable[tuple[float, float]], *, target: float) -> Self:
        """Of (offered rate, attainment) points: where attainment first falls below `target`, linear between points.

        What comes back at higher rates after the first crossing does not count: nobody can run there on purpose.
        """
        ordered = sorted(points)
        if not ordered:
            return cls(bound="unknown", request_rate=None)
        if ordered[0][1] < target:
            return cls(bound="below", request_rate=ordered[0][0])
        for (low, reached), (high, missed) in pairwise(ordered):
            if missed < target:
                part = (reached - target) / (reached - missed)
                return cls(bound="crossing", request_rate=low + (high - low) * part)
        return cls(bound="above", request_rate=ordered[-1][0])

    def __str__(self) -> str:
        sign = {"crossing": "", "below": "< ", "above": "> "}.get(self.bound, "")
        return "unknown" if self.request_rate is None else f"{sign}{self.request_rate:.3g}"


class PlacementResult(Noun):
    """One placement: where it sat, what it reached."""

    name: Text
    simulated: bool
    mode: Literal["disaggregated", "aggregated"]
    gpus: PositiveInt
    plan: Plan
    goodput: Goodput
    rates: tuple[RateResult, ...]
    transfers: tuple[TransferResult, ...]


class InvalidRun(Noun):
    """A run whose numbers are not used, and why."""

    id: Name
    placement: Text
    reasons: Annotated[tuple[Text, ...], Field(min_length=1)]


class Report(Noun):
    """The answer of one sweep."""

    schema_: Annotated[Literal["hpcserve.report/1"], Field(alias="schema")] = "hpcserve.report/1"
    sweep: Text
    site: Site
    slo: Slo
    input_tokens: PositiveInt
    cached_prefix_tokens: _Count
    output_tokens: PositiveInt
    placements: tuple[PlacementResult, ...]
    invalid: tuple[InvalidRun, ...]
    recommendation: Annotated[tuple[Text, ...], Field(min_length=1)]
