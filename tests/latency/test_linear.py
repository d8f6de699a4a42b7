"""The plain latency model: what the interface promises."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.latency import Chunk, LatencyModel, LinearLatency

PLAIN = LinearLatency(
    prefill_base_ms=10.0,
    prefill_ms_per_token=0.1,
    prefill_ms_per_token2=0.001,
    decode_base_ms=6.0,
    decode_ms_per_sequence=0.5,
    decode_ms_per_context_token=0.002,
    kv_tokens=10_000,
    source="made up",
    kind="predicted",
)
COEFFICIENTS = (
    "prefill_base_ms",
    "prefill_ms_per_token",
    "prefill_ms_per_token2",
    "decode_base_ms",
    "decode_ms_per_sequence",
    "decode_ms_per_context_token",
)
coefficient = st.floats(min_value=0, max_value=1e3, allow_subnormal=False)
tokens = st.integers(min_value=0, max_value=200_000)
chunk = st.builds(Chunk, tokens, tokens)
work = st.tuples(st.lists(chunk, max_size=4), st.integers(min_value=0, max_value=512), tokens)


@st.composite
def linear_models(draw: st.DrawFn) -> LinearLatency:
    figures: dict[str, Any] = {name: draw(coefficient) for name in COEFFICIENTS}
    figures["prefill_ms_per_token"] += 1e-6
    figures["decode_base_ms"] += 1e-6
    return replace(PLAIN, **figures)


def test_hand_values() -> None:
    model: LatencyModel = PLAIN
    assert model.prefill_ms([Chunk(100, 0)]) == pytest.approx(10 + 10 + 5)
    assert model.prefill_ms([Chunk(100, 200)]) == pytest.approx(10 + 10 + 25)
    assert model.decode_ms(4, 1000) == pytest.approx(6 + 2 + 2)
    assert model.step_ms([Chunk(100, 0)], 4, 1000) == pytest.approx(10 + 15 + 4)


def test_no_work_takes_no_time() -> None:
    assert PLAIN.prefill_ms([]) == 0
    assert PLAIN.prefill_ms([Chunk(0, 500)]) == 0
    assert PLAIN.decode_ms(0, 0) == 0
    assert PLAIN.step_ms([], 0, 0) == 0


@given(linear_models(), work)
def test_a_step_of_one_phase_is_that_phase(model: LinearLatency, what: tuple[list[Chunk], int, int]) -> None:
    chunks, sequences, context = what
    assert model.step_ms(chunks, 0, 0) == model.prefill_ms(chunks)
    assert model.step_ms([], sequences, context) == model.decode_ms(sequences, context)


@given(linear_models(), work, work)
def test_more_work_never_takes_less_time(
    model: LinearLatency, what: tuple[list[Chunk], int, int], more: tuple[list[Chunk], int, int]
) -> None:
    chunks, sequences, context = what
    larger = [Chunk(one.new_tokens + 1, one.before_tokens + 3) for one in chunks] + more[0]
    sequences_larger, context_larger = sequences + more[1], context + more[2]
    assert model.prefill_ms(larger) >= model.prefill_ms(chunks)
    assert model.decode_ms(sequences_larger, context_larger) >= model.decode_ms(sequences, context)
    assert model.step_ms(larger, sequences_larger, context_larger) >= model.step_ms(chunks, sequences, context)
    assert model.step_ms(chunks, sequences, context) >= model.prefill_ms(chunks)
    assert model.step_ms(chunks, sequences, context) >= model.decode_ms(sequences, context)


@given(linear_models(), st.integers(1, 100_000), st.integers(1, 512))
def test_any_work_takes_time(model: LinearLatency, new: int, sequences: int) -> None:
    assert model.prefill_ms([Chunk(new, 0)]) > 0
    assert model.decode_ms(sequences, 0) > 0


@given(linear_models(), st.lists(st.integers(1, 50_000), min_size=1, max_size=5))
def test_chunks_of_a_prompt_cost_the_prompt_and_a_base_each(model: LinearLatency, cuts: list[int]) -> None:
    ends = [0, *(sum(cuts[: index + 1]) for index in range(len(cuts)))]
    chunks = [Chunk(end - start, start) for start, end in pairwise(ends)]
    whole = model.prefill_ms([Chunk(ends[-1], 0)])
    assert model.prefill_ms(chunks) == pytest.approx(whole)
    each = sum(model.prefill_ms([one]) for one in chunks)
    assert each == pytest.approx(whole + (len(chunks) - 1) * model.prefill_base_ms)


@pytest.mark.parametrize("name", COEFFICIENTS)
@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf")])
def test_impossible_coefficients_are_refused(name: str, value: float) -> None:
    figures: dict[str, Any] = {name: value}
    with pytest.raises(ValueError, match="finite and not negative"):
        replace(PLAIN, **figures)


def test_free_work_is_refused() -> None:
    with pytest.raises(ValueError, match="prefill"):
        replace(PLAIN, prefill_base_ms=0, prefill_ms_per_token=0, prefill_ms_per_token2=0)
    with pytest.raises(ValueError, match="decode"):
        replace(PLAIN, decode_base_ms=0, decode_ms_per_sequence=0)
    with pytest.raises(ValueError, match="0 tokens"):
        replace(PLAIN, kv_tokens=0)
