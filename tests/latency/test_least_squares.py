"""The solver: exact where the data are, signs kept, columns that cannot be told apart named."""

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hpcserve.latency.least_squares import Observation, determined, residuals, solve

ROUNDING = 1e-25
"""Sums of squares below it are what rounding leaves of an exact fit."""
ROWS = [(1.0, n, n * n / 2) for n in (64.0, 256.0, 1024.0, 4096.0, 16384.0)]


@given(st.floats(0, 100), st.floats(1e-3, 1), st.floats(0, 1e-4))
def test_exact_times_give_exact_coefficients(base: float, slope: float, curvature: float) -> None:
    true = (base, slope, curvature)
    seen = [Observation(row=row, ms=sum(a * b for a, b in zip(row, true, strict=True))) for row in ROWS]
    found = solve(seen, (0, 1, 2))
    assert max(map(abs, residuals(seen, found.coefficients))) < 1e-6


def squares(seen: list[Observation], coefficients: tuple[float, ...]) -> float:
    return sum(one.weight * error**2 for one, error in zip(seen, residuals(seen, coefficients), strict=True))


@given(st.lists(st.floats(0.5, 2.0), min_size=5, max_size=5), st.lists(st.floats(1, 20), min_size=5, max_size=5))
@example(noise=[1.0] * 5, weights=[6.474990692153624, 18.5262745044, 10.442122075869, 15.8078025409, 6.474990692153624])
@settings(max_examples=60)
def test_nothing_nearby_of_the_right_sign_is_better(noise: list[float], weights: list[float]) -> None:
    seen = [
        Observation(row=row, ms=(20 + 0.1 * row[1]) * factor, weight=weight)
        for row, factor, weight in zip(ROWS, noise, weights, strict=True)
    ]
    found = solve(seen, (0, 1, 2))
    assert min(found.coefficients) >= 0
    assert found.squares == pytest.approx(squares(seen, found.coefficients))
    steps = (0.5, 1e-3, 1e-7)
    for signs in product((-1, 0, 1), repeat=3):
        near = tuple(
            max(0.0, value + sign * step) for value, sign, step in zip(found.coefficients, signs, steps, strict=True)
        )
        assert squares(seen, near) >= found.squares * (1 - 1e-9) - ROUNDING


def test_what_would_be_negative_is_0() -> None:
    seen = [Observation(row=(1.0, n), ms=n - 5) for n in (10.0, 20.0, 40.0)]
    base, slope = solve(seen, (0, 1)).coefficients
    assert base == 0
    assert 0.5 < slope < 1


def test_errors_are_relative() -> None:
    """2 against 1 and 2,000 against 1,000 weigh the same: one coefficient for both lies where both are off alike."""
    seen = [Observation(row=(1.0,), ms=1.0), Observation(row=(1000.0,), ms=2000.0)]
    found = solve(seen, (0,)).coefficients
    small, large = residuals(seen, found)
    assert found[0] == pytest.approx(1.2)
    assert [small, large] == pytest.approx([0.2, -0.4])


def test_a_weight_counts_as_that_many_observations() -> None:
    one, other = Observation(row=(1.0,), ms=1.0), Observation(row=(1.0,), ms=3.0)
    thrice = Observation(row=(1.0,), ms=3.0, weight=3.0)
    assert solve([one, thrice], (0,)).coefficients == pytest.approx(
        solve([one, other, other, other], (0,)).coefficients
    )


def test_columns_that_observations_cannot_tell_apart_are_left_out() -> None:
    same = [Observation(row=(1.0, n, n * n), ms=ms) for n, ms in ((512.0, 90.0), (514.0, 95.0), (511.0, 88.0))]
    assert determined(same, (1, 0, 2)) == (1,)
    two = [Observation(row=(1.0, n, n * n), ms=10 + n) for n in (32.0, 512.0)]
    assert determined(two, (1, 0, 2)) == (1, 0)
    assert determined([Observation(row=row, ms=10 + row[1]) for row in ROWS], (1, 0, 2)) == (1, 0, 2)
    assert determined([Observation(row=(0.0, 1.0), ms=1.0)], (0, 1)) == (1,)


def test_times_that_no_coefficient_of_the_right_sign_explains_are_refused() -> None:
    with pytest.raises(ValueError, match="right sign"):
        solve([Observation(row=(-1.0,), ms=1.0)], (0,))
