import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.simulate.quantiles import Quantiles


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=200), st.floats(0.001, 1.0))
def test_percentiles_are_those_of_the_sorted_values_within_a_thousandth(values: list[float], share: float) -> None:
    quantiles = Quantiles()
    for value in values:
        quantiles.add(value)
    rank = max(1, math.ceil(share * len(values)))
    assert quantiles.at(share) == pytest.approx(sorted(values)[rank - 1], rel=0.001001)
    assert quantiles.mean == pytest.approx(math.fsum(values) / len(values), rel=1e-9)


def test_nothing_and_zero() -> None:
    quantiles = Quantiles()
    assert quantiles.at(0.5) is None
    assert quantiles.mean is None
    quantiles.add(0.0)
    assert quantiles.at(0.5) == pytest.approx(0.0, abs=1e-5)


def test_memory_is_bounded_by_the_range_and_not_by_the_count() -> None:
    quantiles = Quantiles()
    for number in range(50_000):
        quantiles.add(1.0 + number % 1000)
    assert len(quantiles._buckets) <= math.log(1000) / math.log(1.001 / 0.999) + 2
