import itertools
from typing import Literal

import pytest

from hpcserve.nouns import Role
from hpcserve.simulate import Deployment, Lengths, Offered, Outcome, simulate
from tests.simulate import made

PROMPT = Lengths(100, 1)
SERVICE_MS = 100.0


def one_at_a_time(*, stages: int = 1) -> Deployment:
    """A prompt of 100 tokens fills a step: deterministic service of 100 ms, first come, first served."""
    return made.pairs(prefill={"scheduling": {"token_budget": 100}, "stages": stages}, first_token_by=Role.PREFILL)


def offered(process: Literal["poisson", "gamma"], *, rate: float, requests: int) -> Offered:
    return Offered(rate=rate, requests=requests, lengths=[PROMPT], process=process, variation=2.0)


def lindley(traffic: Offered, *, service_ms: float, seed: int = 0) -> list[float]:
    """The wait of each: what the one before it waited and took, less the gap; never below 0."""
    waits = [0.0]
    for earlier, later in itertools.pairwise(traffic.arrivals(seed)):
        waits.append(max(0.0, waits[-1] + service_ms - (later.at_ms - earlier.at_ms)))
    return waits


def ttfts(outcome: Outcome) -> list[float]:
    return [record.ttft_ms for record in outcome.records if record.ttft_ms is not None]


@pytest.mark.parametrize("process", ["poisson", "gamma"])
@pytest.mark.parametrize("stages", [1, 2])
def test_a_single_queue_is_lindleys(process: Literal["poisson", "gamma"], stages: int) -> None:
    traffic = offered(process, rate=7.0, requests=2000)
    outcome = simulate(one_at_a_time(stages=stages), traffic, slo=made.EASY, keep_records=True)
    waits = lindley(traffic, service_ms=SERVICE_MS / stages)
    assert ttfts(outcome) == pytest.approx([wait + SERVICE_MS for wait in waits], rel=1e-9)


def test_the_mean_wait_is_that_of_m_d_1() -> None:
    """R D^2 / (2 (1 - R D)), Pollaczek and Khinchine; the chance of such a run is 0.8 %, hence the fixed seed.

    `benchmarks.paper_reproductions` runs long enough for any seed.
    """
    rate_per_ms = 0.005
    traffic = offered("poisson", rate=rate_per_ms * 1e3, requests=120_000)
    outcome = simulate(one_at_a_time(), traffic, slo=made.EASY, seed=1)
    wait_ms = rate_per_ms * SERVICE_MS**2 / (2 * (1 - rate_per_ms * SERVICE_MS))
    assert outcome.mean_ttft_ms is not None
    assert outcome.mean_ttft_ms - SERVICE_MS == pytest.approx(wait_ms, rel=0.01)
    assert outcome.pool(Role.PREFILL).busy == pytest.approx(0.5, rel=0.001)
    assert outcome.pool(Role.DECODE).busy == 0.0
