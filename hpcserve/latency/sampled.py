"""A model of steps that can only be asked one batch at a time, such as aiconfigurator's, -> a latency file."""

from collections.abc import Iterator
from statistics import median
from typing import Protocol

from hpcserve.latency.curve import rising
from hpcserve.latency.digits import points_of, rounded
from hpcserve.latency.record import model_of
from hpcserve.latency.residual import with_residuals
from hpcserve.latency.step import Chunk
from hpcserve.nouns import CurvePoint, DecodeCurve, LatencyFile, PrefillCurve

__all__ = ["StepTimes", "sampled_latency"]

_NEW_TOKENS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_BEFORE_TOKENS = (1024, 4096, 16384)
_PROMPTS = (2, 4, 8)
_SEQUENCES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_CONTEXTS = (128, 1024, 4096, 16384)
_MOST_ATTENTION = 0.9
"""Share of a prefill that its attention term may be at most, so that the curve below it stays above 0."""


class StepTimes(Protocol):
    """The two questions that are asked, as `aiconfigurator_core.sdk.EngineHandle` (0.12) takes them."""

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
        """Milliseconds of one step over `bs` prompts of `isl` tokens each, `prefix` of them cached."""

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
        """Milliseconds of one step that gives the `osl`-th token to each of `bs` sequences after `isl` of input."""


def sampled_latency(
    times: StepTimes,
    *,
    model: str,
    gpu: str,
    engine: str,
    source: str,
    tensor_parallel: int,
    kv_tokens: int | None,
    most_tokens: int,
) -> LatencyFile:
    """Curves through what `times` answers, for contexts up to `most_tokens`, with how far they are from its answers.

    The prefill curve runs through single prompts without a prefix, the decode curve through the shortest contexts; what
    a longer prefix or context adds is the median of what it adds over the samples.
    """
    prefill = [(new, before) for new in _NEW_TOKENS for before in (0, *_BEFORE_TOKENS) if new + before <= most_tokens]
    decode = [(count, context) for count in _SEQUENCES for context in _CONTEXTS if context < most_tokens]
    prefill_ms = {(new, before): times.predict_prefill_latency(1, new + before, before) for new, before in prefill}
    decode_ms = {(count, context): times.predict_decode_latency(count, context, 2) for count, context in decode}
    per_token2, prefill_points = _prefill_curve(prefill_ms)
    per_context, decode_points = _decode_curve(decode_ms)
    made = LatencyFile(
        schema_="hpcserve.latency/1",
        model=model,
        gpu=gpu,
        engine=engine,
        kind="predicted",
        source=source,
        kv_tokens=kv_tokens,
        prefill=PrefillCurve(tensor_parallel=tensor_parallel, points=prefill_points, ms_per_token2=per_token2),
        decode=DecodeCurve(tensor_parallel=tensor_parallel, points=decode_points, ms_per_context_token=per_context),
        notes=("times that fell where more work was done were put at their mean",),
    )
    built = model_of(made)
    prefill_errors = [built.prefill_ms([Chunk(*work)]) / ms - 1 for work, ms in prefill_ms.items()]
    prefill_errors += [
        built.prefill_ms([Chunk(new, 0)] * prompts) / times.predict_prefill_latency(prompts, new, 0) - 1
        for prompts in _PROMPTS
        for new in _NEW_TOKENS
        if prompts * new <= most_tokens
    ]
    decode_errors = [built.decode_ms(count, count * context) / ms - 1 for (count, context), ms in decode_ms.items()]
    return with_residuals(made, prefill=prefill_errors, decode=decode_errors)


def _prefill_curve(ms: dict[tuple[int, int], float]) -> tuple[float, tuple[CurvePoint, ...]]:
    grown = [(found - ms[new, 0]) / (new * before) for (new, before), found in ms.items() if before and (new, 0) in ms]
    bound = min(_MOST_ATTENTION * found / (new * new / 2) for (new, before), found in ms.items() if not before)
    slope = rounded(min(bound, max(0.0, median(grown)))) if grown else 0.0
    single = ((new, found - slope * new * new / 2) for (new, before), found in ms.items() if not before)
    return slope, points_of(rising(single))


def _decode_curve(ms: dict[tuple[int, int], float]) -> tuple[float, tuple[CurvePoint, ...]]:
    shortest = min(context for _, context in ms)
    slope = rounded(max(0.0, median(_growth(ms, shortest))))
    least = min(found / (count * shortest) for (count, context), found in ms.items() if context == shortest)
    slope = min(slope, rounded(_MOST_ATTENTION * least))
    single = ((count, found - slope * count * context) for (count, context), found in ms.items() if context == shortest)
    return slope, points_of(rising(single))


def _growth(ms: dict[tuple[int, int], float], shortest: int) -> Iterator[float]:
    for (count, context), found in ms.items():
        if context != shortest:
            yield (found - ms[count, shortest]) / (count * (context - shortest))
