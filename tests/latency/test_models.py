"""What every latency model promises, held for each kind of them."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.latency import (
    NAMES,
    Chunk,
    Curve,
    CurvedLatency,
    LatencyModel,
    LinearLatency,
    TwoRegimeLatency,
    distserve,
    named,
)
from hpcserve.latency.curve import rising

counts = st.integers(0, 600)
tokens = st.integers(0, 100_000)
chunks = st.lists(st.builds(Chunk, tokens, tokens), max_size=3)
Work = tuple[list[Chunk], int, int]
work = st.tuples(chunks, counts, tokens)
coefficient = st.floats(0, 1e3, allow_subnormal=False)


@st.composite
def curves(draw: st.DrawFn) -> Curve:
    sizes = sorted(draw(st.sets(st.integers(1, 100_000), min_size=2, max_size=6)))
    times = sorted(draw(st.lists(st.floats(1e-3, 1e5), min_size=len(sizes), max_size=len(sizes))))
    return Curve(tuple(zip(sizes, times, strict=True)))


@st.composite
def curved(draw: st.DrawFn) -> LatencyModel:
    return CurvedLatency(
        prefill=draw(curves()),
        prefill_ms_per_token2=draw(coefficient),
        decode=draw(curves()),
        decode_ms_per_context_token=draw(coefficient),
        kv_tokens=None,
        source="made up",
        kind="predicted",
    )


@st.composite
def linear(draw: st.DrawFn, prefill_base_ms: float | None = None) -> LinearLatency:
    return LinearLatency(
        prefill_base_ms=draw(coefficient) if prefill_base_ms is None else prefill_base_ms,
        prefill_ms_per_token=draw(coefficient) + 1e-6,
        prefill_ms_per_token2=draw(coefficient),
        decode_base_ms=draw(coefficient) + 1e-6,
        decode_ms_per_sequence=draw(coefficient),
        decode_ms_per_context_token=draw(coefficient),
        kv_tokens=None,
        source="made up",
        kind="predicted",
    )


@st.composite
def two_regimes(draw: st.DrawFn) -> LatencyModel:
    return TwoRegimeLatency(small=draw(linear()), large=draw(linear()), large_from=draw(st.integers(2, 500)))


models = st.one_of(curved(), two_regimes(), st.sampled_from(NAMES).map(named))


@given(models, chunks, counts, tokens)
def test_a_step_of_one_phase_is_that_phase(model: LatencyModel, some: list[Chunk], count: int, context: int) -> None:
    assert model.step_ms(some, 0, 0) == model.prefill_ms(some)
    assert model.step_ms([], count, context) == model.decode_ms(count, context)


@given(models, work, work)
@settings(max_examples=300)
def test_more_work_never_takes_less_time(model: LatencyModel, less: Work, more: Work) -> None:
    (some, count, context), (others, more_count, more_context) = less, more
    larger = [Chunk(one.new_tokens + 1, one.before_tokens + 7) for one in some] + others
    all_of_it = (larger, count + more_count, context + more_context)
    assert model.prefill_ms(larger) >= model.prefill_ms(some)
    assert model.decode_ms(*all_of_it[1:]) >= model.decode_ms(count, context)
    assert model.step_ms(*all_of_it) >= model.step_ms(*less)
    assert model.step_ms(*less) >= max(model.prefill_ms(some), model.decode_ms(count, context))


@given(models, st.integers(1, 100_000), st.integers(1, 600))
def test_any_work_takes_time_and_none_takes_none(model: LatencyModel, new: int, count: int) -> None:
    assert model.prefill_ms([Chunk(new, 0)]) > 0
    assert model.decode_ms(count, 0) > 0
    assert model.step_ms([Chunk(0, new)], 0, 0) == 0


@given(curves(), st.integers(1, 200_000), st.integers(0, 5_000))
def test_a_curve_never_falls(curve: Curve, size: int, more: int) -> None:
    assert 0 < curve.at(size) <= curve.at(size + more)
    assert curve.base_ms <= curve.at(1) * (1 + 1e-12)


@given(curves())
def test_a_curve_goes_through_its_points(curve: Curve) -> None:
    for size, ms in curve.points:
        assert curve.at(size) == pytest.approx(ms)


def test_a_curve_by_hand() -> None:
    curve = Curve(((10, 5.0), (20, 7.0), (40, 15.0)))
    assert [curve.at(size) for size in (1, 5, 15, 30, 60)] == pytest.approx([3.2, 4.0, 6.0, 11.0, 23.0])
    assert curve.base_ms == pytest.approx(3.0)
    steep = Curve(((10, 5.0), (20, 20.0)))
    assert (steep.base_ms, steep.at(5)) == (0.0, 2.5)


@pytest.mark.parametrize(
    ("points", "what"),
    [
        (((1, 1.0),), "two points"),
        (((0, 1.0), (2, 2.0)), "begin at 1"),
        (((2, 1.0), (2, 2.0)), "rise"),
        (((1, 2.0), (2, 1.0)), "do not fall"),
        (((1, 0.0), (2, 1.0)), "above 0"),
        (((1, 1.0), (2, float("inf"))), "finite"),
    ],
)
def test_what_is_no_curve_is_refused(points: tuple[tuple[int, float], ...], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        Curve(points)


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.1, 1e4)), min_size=1, max_size=30))
def test_pooled_times_never_fall_and_keep_their_sum(points: list[tuple[int, float]]) -> None:
    found = rising(points)
    assert [size for size, _ in found] == sorted({size for size, _ in points})
    assert all(one[1] <= other[1] for one, other in pairwise(found))
    weight = {size: sum(each == size for each, _ in points) for size, _ in points}
    assert sum(weight[size] * ms for size, ms in found) == pytest.approx(sum(ms for _, ms in points))


def test_pooled_times_by_hand() -> None:
    assert rising([(3, 4.0), (1, 5.0), (2, 3.0), (4, 9.0)]) == ((1, 4.0), (2, 4.0), (3, 4.0), (4, 9.0))
    assert rising([(1, 1.0), (2, 2.0)]) == ((1, 1.0), (2, 2.0))


def test_a_mixed_step_pays_one_base() -> None:
    model = CurvedLatency(
        prefill=Curve(((100, 20.0), (200, 30.0))),
        prefill_ms_per_token2=0.0,
        decode=Curve(((1, 8.0), (2, 9.0))),
        decode_ms_per_context_token=0.0,
        kv_tokens=None,
        source="made up",
        kind="predicted",
    )
    assert model.step_ms([Chunk(100, 0)], 2, 500) == pytest.approx(20 + 9 - 7)


def test_two_regimes_that_do_not_meet_are_joined_without_a_fall() -> None:
    """OPT-13B at TP 1: 95 sequences of 400 tokens by the large fit take less than 94 by the small one."""
    model = named("distserve-opt-13b-a100-tp1")
    assert isinstance(model, TwoRegimeLatency)
    context = 95 * 400
    assert model.large.decode_ms(95, context) < model.small.decode_ms(94, context)
    assert model.decode_ms(95, context) == model.small.decode_ms(94, context)
    assert model.decode_ms(300, context) == model.large.decode_ms(300, context)


def test_impossible_models_are_refused() -> None:
    small, other = (distserve("opt-13b", ranks).small for ranks in (1, 2))
    with pytest.raises(ValueError, match="no batch"):
        TwoRegimeLatency(small=small, large=small, large_from=1)
    with pytest.raises(ValueError, match="one KV capacity"):
        TwoRegimeLatency(small=small, large=other, large_from=10)
    line = Curve(((1, 1.0), (2, 1.0)))
    with pytest.raises(ValueError, match="not negative"):
        CurvedLatency(
            prefill=line, prefill_ms_per_token2=-1.0, decode=line, decode_ms_per_context_token=0.0, kv_tokens=None,
            source="made up", kind="predicted",
        )  # fmt: skip
