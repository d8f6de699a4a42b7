import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.simulate.stretch import Stretch, stretch_of

SIZES = {"sequences": st.integers(1, 50), "context": st.integers(0, 5000), "steps": st.integers(1, 3000)}


def bent(sequences: int, context_tokens: int) -> float:
    """A curve, as of a table between two slopes."""
    return 5.0 + 0.1 * sequences + 0.001 * context_tokens + 0.002 * max(0, context_tokens - 4000)


def straight(sequences: int, context_tokens: int) -> float:
    return 5.0 + 0.1 * sequences + 0.001 * context_tokens


@given(**SIZES)
def test_a_straight_model_is_one_stretch_with_the_sum_of_its_steps(sequences: int, context: int, steps: int) -> None:
    made = stretch_of(straight, start_ms=7.0, sequences=sequences, context_tokens=context, steps=steps)
    each = [straight(sequences, context + step * sequences) for step in range(steps)]
    assert made.steps == steps
    assert made.end_ms == pytest.approx(7.0 + math.fsum(each), rel=1e-9)


@given(**SIZES)
def test_a_bent_model_is_followed_piece_by_piece(sequences: int, context: int, steps: int) -> None:
    now_ms, done = 0.0, 0
    while done < steps:
        piece = stretch_of(
            bent, start_ms=now_ms, sequences=sequences, context_tokens=context + done * sequences, steps=steps - done
        )
        now_ms, done = piece.end_ms, done + piece.steps
    assert done == steps
    assert now_ms == pytest.approx(
        math.fsum(bent(sequences, context + step * sequences) for step in range(steps)), rel=1e-5
    )


@given(
    first_ms=st.floats(0.01, 100),
    more_ms=st.one_of(st.just(0.0), st.floats(1e-12, 1)),
    steps=st.integers(1, 500),
    part=st.floats(0, 1),
)
def test_the_step_that_runs_at_a_time_is_found(first_ms: float, more_ms: float, steps: int, part: float) -> None:
    made = Stretch(3.0, steps, first_ms, more_ms)
    now_ms = 3.0 + made.length_ms(steps) * part
    found = made.steps_until(now_ms)
    ends = [made.length_ms(number) for number in range(1, steps + 1)]
    expected = next((number for number, end in enumerate(ends, 1) if end >= now_ms - 3.0), steps)
    assert found == expected
