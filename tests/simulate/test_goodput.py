from dataclasses import replace

import pytest

from hpcserve.nouns import Slo
from hpcserve.simulate import Lengths, Offered, find_goodput
from tests.simulate import made

SLO = Slo(ttft_ms=250.0, tpot_ms=1e6)
TRAFFIC = Offered(rate=1.0, requests=400, lengths=[Lengths(100, 1)])
ONE = made.aggregated(scheduling={"token_budget": 100})


def test_the_crossing_is_found_within_the_tolerance() -> None:
    found = find_goodput(ONE, TRAFFIC, slo=SLO, lowest=0.5, highest=50.0, tolerance=0.01)
    assert found.goodput.bound == "crossing"
    assert found.goodput.request_rate is not None
    rates = [run.offered_rate for run in found.runs]
    assert rates == sorted(rates)
    below = max(run.offered_rate for run in found.runs if run.attainment >= SLO.attainment)
    above = min(run.offered_rate for run in found.runs if run.attainment < SLO.attainment)
    assert below <= found.goodput.request_rate <= above <= below / 0.99
    assert 2.0 < found.goodput.request_rate < 10.0


def test_two_workers_reach_twice_as_far_and_more() -> None:
    """Two queues behind one router lose less to chance than one: at least the double."""
    two = replace(ONE, workers=made.aggregated(2, scheduling={"token_budget": 100}).workers)
    rates = [find_goodput(one, TRAFFIC, slo=SLO, lowest=0.5, highest=50.0).goodput.request_rate for one in (ONE, two)]
    assert rates[0] is not None
    assert rates[1] is not None
    assert rates[1] >= 2 * rates[0] * 0.98


@pytest.mark.parametrize(("ttft_ms", "highest", "bound", "rate"), [(50.0, 5.0, "below", 0.5), (1e7, 5.0, "above", 5.0)])
def test_outside_the_range_a_bound_is_said(ttft_ms: float, highest: float, bound: str, rate: float) -> None:
    slo = Slo(ttft_ms=ttft_ms, tpot_ms=1e6)
    found = find_goodput(ONE, TRAFFIC, slo=slo, lowest=0.5, highest=highest)
    assert (found.goodput.bound, found.goodput.request_rate) == (bound, rate)


def test_rates_that_are_no_interval() -> None:
    with pytest.raises(ValueError, match="interval"):
        find_goodput(ONE, TRAFFIC, slo=SLO, lowest=2.0, highest=1.0)
