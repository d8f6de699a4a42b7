"""Sampling a model that answers one batch at a time."""

import pytest

from hpcserve.latency import Chunk, LinearLatency, model_of, sampled_latency
from hpcserve.nouns import DecodeCurve, LatencyFile, PrefillCurve

TRUE = LinearLatency(
    prefill_base_ms=8.0,
    prefill_ms_per_token=0.04,
    prefill_ms_per_token2=5e-7,
    decode_base_ms=9.0,
    decode_ms_per_sequence=0.02,
    decode_ms_per_context_token=1.5e-5,
    kv_tokens=None,
    source="made up",
    kind="predicted",
)


class Times:
    """Answers as aiconfigurator's engine does: the input counts its cached prefix, contexts are all alike."""

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
        assert isl > prefix
        return TRUE.prefill_ms([Chunk(isl - prefix, prefix)] * bs)

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
        assert osl >= 2
        return TRUE.decode_ms(bs, bs * isl)


def sampled(times: Times, most_tokens: int = 32_768) -> LatencyFile:
    return sampled_latency(
        times, model="m", gpu="g", engine="e 1", source="s", tensor_parallel=2, kv_tokens=None, most_tokens=most_tokens
    )


def test_a_straight_model_comes_back() -> None:
    found = sampled(Times())
    model = model_of(found)
    for chunks in ([Chunk(100, 0)], [Chunk(3000, 5000)], [Chunk(500, 0), Chunk(9, 20_000)]):
        assert model.prefill_ms(chunks) == pytest.approx(TRUE.prefill_ms(chunks), rel=1e-3)
        assert model.step_ms(chunks, 7, 9000) == pytest.approx(TRUE.step_ms(chunks, 7, 9000), rel=1e-2)
    for sequences, context in ((1, 100), (77, 100_000), (500, 3_000_000)):
        assert model.decode_ms(sequences, context) == pytest.approx(TRUE.decode_ms(sequences, context), rel=1e-3)
    assert found.prefill.residual is not None
    assert found.prefill.residual.worst < 1e-3
    assert found.decode.residual is not None
    assert found.decode.residual.worst < 1e-3


class Bumpy(Times):
    """Kernels change with the size: 4,096 tokens and 32 sequences are quicker than less."""

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
        return super().predict_prefill_latency(bs, isl, prefix) * (0.4 if bs * (isl - prefix) == 4096 else 1.0)

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
        return super().predict_decode_latency(bs, isl, osl) * (0.7 if bs == 32 else 1.0)


def test_bumps_are_smoothed_and_show_in_the_error() -> None:
    found = sampled(Bumpy())
    assert isinstance(found.prefill, PrefillCurve)
    assert isinstance(found.decode, DecodeCurve)
    for points in (found.prefill.points, found.decode.points):
        times = [point.ms for point in points]
        assert times == sorted(times)
    assert found.prefill.residual is not None
    assert found.prefill.residual.worst > 0.3
    assert found.decode.residual is not None
    assert found.decode.residual.worst > 0.1


class OnlyAttention(Times):
    """All of the time is attention, or context: the curves below must stay above 0."""

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
        new = isl - prefix
        return bs * 1e-3 * new * (prefix + new / 2)

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
        assert osl == 2
        return bs * isl * 1e-3


def test_curves_stay_above_0_where_all_is_attention() -> None:
    model = model_of(sampled(OnlyAttention()))
    assert model.prefill_ms([Chunk(1, 0)]) > 0
    assert model.decode_ms(1, 0) > 0


def test_no_longer_contexts_are_asked_for_than_there_are() -> None:
    class Short(Times):
        def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
            assert isl <= 2048
            return super().predict_prefill_latency(bs, isl, prefix)

        def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
            assert isl < 2048
            return super().predict_decode_latency(bs, isl, osl)

    assert model_of(sampled(Short(), most_tokens=2048)).prefill_ms([Chunk(1000, 0)]) == pytest.approx(48.25, rel=1e-3)
