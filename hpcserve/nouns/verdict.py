"""`Verdict`: whether prefill and decode should be separate, why, and every number behind it."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Noun, Positive, Text

__all__ = ["Evidence", "NoBenefit", "TransferWeight", "Verdict"]

NoBenefit = Literal[
    "slow link",
    "short prompts",
    "low load",
    "one GPU",
    "small model",
    "loose SLO",
    "prefix reuse first",
]
"""Rules of when separating the phases gives nothing."""

TransferWeight = Literal["hidden", "visible", "longer than the prefill"]
"""What the slowest transfer is beside the prefill: under a tenth of it, under it, or not."""


class Evidence(Noun):
    """One number that a verdict rests on."""

    what: Text
    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: Text
    kind: Literal["asked", "measured", "predicted", "simulated"]
    """`asked`: what the service or the site says."""
    source: Text


class Verdict(Noun):
    """Whether disaggregation pays on these paths; the first of the reasons is the verdict in one sentence."""

    disaggregate: bool
    reasons: Annotated[tuple[Text, ...], Field(min_length=1)]
    worst_transfer_ms: Positive | None
    prefill_ms: Positive | None
    """Predicted compute of one typical prefill; None where the speed is not known."""
    basis: Literal["arithmetic", "simulation"] = "arithmetic"
    """What decided: transfer time against prefill time, or goodput of both ways under the SLO."""
    transfer: TransferWeight | None = None
    """None where the prefill's speed is not known, or nothing moves."""
    against: tuple[NoBenefit, ...] = ()
    """The rules of no benefit that apply."""
    evidence: tuple[Evidence, ...] = ()
