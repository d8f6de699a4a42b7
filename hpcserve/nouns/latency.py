"""`LatencyFile`: how long one kind of worker computes, as it is kept on disk."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Noun, Positive, PositiveInt, Text

__all__ = [
    "CurvePoint",
    "DecodeCurve",
    "DecodeLine",
    "LatencyFile",
    "PrefillCurve",
    "PrefillLine",
    "Residual",
]

Coefficient = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
"""Milliseconds, or milliseconds per something."""


class Residual(Noun):
    """What a fit leaves unexplained, as a share of the measured time."""

    n: PositiveInt
    """Observations."""
    median: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    worst: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class CurvePoint(Noun):
    """A step of `at` tokens or sequences takes `ms`."""

    at: PositiveInt
    ms: Positive


class PrefillLine(Noun):
    """base + per token + attention: `ms_per_token2` x new x (before + new / 2), summed over the step's chunks."""

    form: Literal["line"] = "line"
    tensor_parallel: PositiveInt
    pipeline_parallel: PositiveInt = 1
    base_ms: Coefficient
    ms_per_token: Coefficient
    ms_per_token2: Coefficient
    residual: Residual | None = None
    """None where the figures come from elsewhere as they are."""


class PrefillCurve(Noun):
    """A curve over the step's new tokens, straight between its points, and attention on top of it."""

    form: Literal["curve"] = "curve"
    tensor_parallel: PositiveInt
    pipeline_parallel: PositiveInt = 1
    points: Annotated[tuple[CurvePoint, ...], Field(min_length=2)]
    ms_per_token2: Coefficient
    residual: Residual | None = None


class DecodeLine(Noun):
    """base + per sequence + per token of context, summed over the step's sequences."""

    form: Literal["line"] = "line"
    tensor_parallel: PositiveInt
    pipeline_parallel: PositiveInt = 1
    base_ms: Coefficient
    ms_per_sequence: Coefficient
    ms_per_context_token: Coefficient
    residual: Residual | None = None


class DecodeCurve(Noun):
    """A curve over the step's sequences, straight between its points, and the context on top of it."""

    form: Literal["curve"] = "curve"
    tensor_parallel: PositiveInt
    pipeline_parallel: PositiveInt = 1
    points: Annotated[tuple[CurvePoint, ...], Field(min_length=2)]
    ms_per_context_token: Coefficient
    residual: Residual | None = None


class LatencyFile(Noun):
    """Times of one worker of a model on a GPU under an engine: fitted, sampled or published.

    Of a worker of several pipeline stages they are those of a step through all of them.
    """

    schema_: Annotated[Literal["hpcserve.latency/1"], Field(alias="schema")]
    model: Text
    gpu: Text
    engine: Text
    """With its version where that is known."""
    kind: Literal["measured", "predicted"]
    """`measured`: fitted from runs of this very kind of worker."""
    source: Text
    """Where the figures come from, in words that a plan can print."""
    kv_tokens: PositiveInt | None
    """KV that one worker holds; None: unknown."""
    prefill: Annotated[PrefillLine | PrefillCurve, Field(discriminator="form")]
    decode: Annotated[DecodeLine | DecodeCurve, Field(discriminator="form")]
    notes: tuple[Text, ...] = ()
    """What a reader must know to use the figures."""
