import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.simulate import Arrival, Lengths, Offered, Trace
from hpcserve.simulate.draws import Draws

ONE = [Lengths(10, 2)]


def gaps_ms(traffic: Offered, seed: int = 0) -> list[float]:
    return [later.at_ms - earlier.at_ms for earlier, later in itertools.pairwise(traffic.arrivals(seed))]


def test_splitmix_is_the_published_one() -> None:
    """The first outputs from state 0 are those that its authors' code gives."""
    draws = Draws(0)
    draws._counter = 0
    assert [int(draws.uniform() * 2**53) << 11 for _ in range(3)] == [
        value & ~((1 << 11) - 1) for value in (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)
    ]


def test_streams_of_other_names_and_seeds_differ() -> None:
    firsts = {Draws(seed, name).uniform() for seed in range(20) for name in ("", "gaps", "spag", "lengths")}
    assert len(firsts) == 80


@pytest.mark.parametrize("shape", [0.1, 0.5, 1.0, 4.0])
def test_gamma_has_its_mean_and_variance(shape: float) -> None:
    draws = Draws(1)
    values = [draws.gamma(shape) for _ in range(20_000)]
    assert statistics.fmean(values) == pytest.approx(shape, rel=5 / math.sqrt(20_000 * shape))
    assert statistics.pvariance(values) == pytest.approx(shape, rel=0.25 if shape < 0.5 else 0.1)


def test_poisson_gaps_are_exponential() -> None:
    gaps = sorted(gaps_ms(Offered(rate=10.0, requests=20_001, lengths=ONE)))
    for share in (0.1, 0.5, 0.9, 0.99):
        assert gaps[int(share * 20_000)] == pytest.approx(-100.0 * math.log(1 - share), rel=0.05)


def test_gamma_gaps_have_the_variation_that_was_asked_for() -> None:
    gaps = gaps_ms(Offered(rate=10.0, requests=20_001, lengths=ONE, process="gamma", variation=2.0))
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(2.0, rel=0.05)


@given(
    rate=st.floats(0.01, 1e4),
    requests=st.integers(1, 50),
    process=st.sampled_from(["poisson", "gamma", "fixed"]),
    seed=st.integers(-5, 2**70),
)
def test_the_rate_is_exactly_offered_in_order(rate: float, requests: int, process: str, seed: int) -> None:
    traffic = Offered(rate=rate, requests=requests, lengths=ONE, process=process)  # type: ignore[arg-type]
    times = [arrival.at_ms for arrival in traffic.arrivals(seed)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(requests / rate * 1e3, rel=1e-9)
    assert len(times) == requests
    if process == "fixed":
        assert times == pytest.approx([(number + 1) / rate * 1e3 for number in range(requests)])


def test_another_rate_has_the_same_requests_at_stretched_times() -> None:
    traffic = Offered(rate=2.0, requests=50, lengths=[Lengths(10, 2), Lengths(20, 4)])
    slow, fast = list(traffic.arrivals(3)), list(traffic.at_rate(4.0).arrivals(3))
    assert [one.lengths for one in slow] == [one.lengths for one in fast]
    assert len({one.lengths for one in slow}) == 2
    assert [one.at_ms for one in slow] == pytest.approx([2 * one.at_ms for one in fast])
    assert traffic.typical == Lengths(15, 3)


def test_a_trace_at_another_rate() -> None:
    trace = Trace(seen=(Arrival(0.0, ONE[0]), Arrival(500.0, ONE[0]), Arrival(2000.0, ONE[0])))
    assert trace.rate == pytest.approx(1.5)
    faster = trace.at_rate(3.0)
    assert faster.rate == pytest.approx(3.0)
    assert [one.at_ms for one in faster.arrivals(0)] == pytest.approx([0.0, 250.0, 1000.0])
    with pytest.raises(ValueError, match="no rate"):
        Trace(seen=(Arrival(0.0, ONE[0]),)).at_rate(1.0)


@pytest.mark.parametrize(
    "made",
    [
        lambda: Lengths(0, 1),
        lambda: Lengths(1, 0),
        lambda: Lengths(5, 1, 5),
        lambda: Offered(rate=0.0, requests=1, lengths=ONE),
        lambda: Offered(rate=math.inf, requests=1, lengths=ONE),
        lambda: Offered(rate=1.0, requests=1, lengths=[]),
        lambda: Offered(rate=1.0, requests=1, lengths=ONE, process="gamma", variation=0.0),
        lambda: Trace(seen=()),
    ],
)
def test_what_is_no_traffic_is_refused(made: object) -> None:
    with pytest.raises(ValueError, match=r"wanted|cannot"):
        made()  # type: ignore[operator]
