import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.nouns import Goodput, Sample, Slo
from hpcserve.report import is_good, wilson_interval

_SLO = Slo(ttft_ms=1000.0, tpot_ms=150.0)


def _sample(ttft_ms: float | None, tpot_ms: float | None, error: str = "") -> Sample:
    return Sample(start_s=0.0, input_tokens=8, output_tokens=2, ttft_ms=ttft_ms, tpot_ms=tpot_ms, error=error)


@pytest.mark.parametrize(
    ("ttft_ms", "tpot_ms", "error", "good"),
    [
        (1000.0, 150.0, "", True),
        (1000.1, 10.0, "", False),
        (10.0, 150.1, "", False),
        (None, None, "", False),
        (10.0, None, "", True),
        (10.0, 10.0, "connection reset", False),
    ],
)
def test_a_request_is_good_when_both_times_meet_the_slo(
    ttft_ms: float | None, tpot_ms: float | None, error: str, *, good: bool
) -> None:
    assert is_good(_sample(ttft_ms, tpot_ms, error), _SLO) is good


@pytest.mark.parametrize(
    ("good", "total", "low", "high"),
    # Wilson's interval as R's prop.test(correct=FALSE) and Newcombe (1998), table I, print it
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_agrees_with_published_intervals(good: int, total: int, low: float, high: float) -> None:
    assert wilson_interval(good, total) == pytest.approx((low, high), abs=5e-5)


def test_wilson_of_nothing_says_nothing() -> None:
    assert wilson_interval(0, 0) == (0.0, 1.0)


@given(st.integers(1, 500).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_wilson_holds_the_share_and_is_symmetric(pair: tuple[int, int]) -> None:
    good, total = pair
    low, high = wilson_interval(good, total)
    assert 0 <= low <= good / total <= high <= 1
    mirrored = wilson_interval(total - good, total)
    assert (1 - mirrored[1], 1 - mirrored[0]) == pytest.approx((low, high), abs=1e-12)


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ([], "unknown"),
        ([(0.5, 0.8), (1.0, 0.95)], "< 0.5"),
        ([(0.5, 1.0), (1.0, 0.9)], "> 1"),
        ([(1.0, 1.0), (2.0, 0.8)], "1.5"),
        ([(2.0, 0.8), (1.0, 1.0)], "1.5"),
        ([(1.0, 0.9), (2.0, 0.1)], "1"),
        # comes back above the target at 3: does not count
        ([(1.0, 1.0), (2.0, 0.8), (3.0, 1.0), (4.0, 0.0)], "1.5"),
    ],
)
def test_goodput_is_the_first_crossing(points: list[tuple[float, float]], words: str) -> None:
    assert str(Goodput.first_crossing(points, target=0.9)) == words


_POINTS = st.dictionaries(st.integers(1, 50).map(float), st.floats(0, 1), min_size=1, max_size=8)


@given(_POINTS, st.floats(0.01, 1))
def test_goodput_lies_between_the_last_rate_that_reached_and_the_first_that_missed(
    points: dict[float, float], target: float
) -> None:
    goodput = Goodput.first_crossing(points.items(), target=target)
    missed = min((rate for rate, share in points.items() if share < target), default=math.inf)
    reached = max((rate for rate in points if rate < missed), default=None)
    assert goodput.request_rate is not None
    if goodput.bound == "crossing":
        assert reached is not None
        assert reached <= goodput.request_rate <= missed
    else:
        assert goodput.bound == ("below" if reached is None else "above")
        assert goodput.request_rate == (min(points) if reached is None else max(points))


@given(_POINTS, st.floats(0.01, 1))
def test_points_beyond_the_first_miss_change_nothing(points: dict[float, float], target: float) -> None:
    missed = min((rate for rate, share in points.items() if share < target), default=math.inf)
    kept = {rate: share for rate, share in points.items() if rate <= missed}
    assert Goodput.first_crossing(points.items(), target=target) == Goodput.first_crossing(kept.items(), target=target)
