"""`simulate` and `find_goodput`: one run, and the rate at which the SLO is first missed."""

from dataclasses import dataclass

from hpcserve.nouns import Goodput, Slo
from hpcserve.simulate.deployment import Deployment
from hpcserve.simulate.outcome import Outcome
from hpcserve.simulate.simulation import Simulation
from hpcserve.simulate.traffic import Traffic

__all__ = ["GoodputFound", "find_goodput", "simulate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputFound:
    """Goodput, and the runs that it was found by, lowest rate first."""

    goodput: Goodput
    runs: tuple[Outcome, ...]


def simulate(
    deployment: Deployment,
    traffic: Traffic,
    *,
    slo: Slo,
    seed: int = 0,
    warm_up: int = 0,
    keep_records: bool = False,
) -> Outcome:
    """What this service gives this traffic: the same for the same seed, on every machine.

    `warm_up`: so many first requests are served and not counted. `keep_records`: one `Record` a request, in memory that
    grows with them; without, memory grows with the requests that are in the service at one time.
    """
    return Simulation(deployment, traffic, slo=slo, seed=seed, warm_up=warm_up, keep_records=keep_records).run()


def find_goodput(
    deployment: Deployment,
    traffic: Traffic,
    *,
    slo: Slo,
    lowest: float,
    highest: float,
    seed: int = 0,
    warm_up: int = 0,
    tolerance: float = 0.02,
) -> GoodputFound:
    """The highest rate whose attainment reaches the SLO's target, between `lowest` and `highest` requests/s.

    Rates double from `lowest` up to the first that misses the target, then the gap is halved until it is `tolerance` of
    the rate; the crossing is interpolated, as in a report. What comes back at higher rates does not count. All runs
    have the same requests, at stretched times. Raises ValueError where the rates are no interval.
    """
    if not 0 < lowest < highest:
        raise ValueError(f"rates from {lowest} to {highest} are no interval above 0")
    runs: dict[float, Outcome] = {}

    def meets(rate: float) -> bool:
        runs[rate] = simulate(deployment, traffic.at_rate(rate), slo=slo, seed=seed, warm_up=warm_up)
        return runs[rate].attainment >= slo.attainment

    good, bad, rate = None, None, lowest
    while bad is None:
        if meets(rate):
            good = rate
            if rate >= highest:
                break
            rate = min(rate * 2, highest)
        else:
            bad = rate
    while good is not None and bad is not None and bad - good > tolerance * bad:
        middle = (good + bad) / 2
        if meets(middle):
            good = middle
        else:
            bad = middle
    attainments = [(rate, run.attainment) for rate, run in runs.items()]
    return GoodputFound(
        goodput=Goodput.first_crossing(attainments, target=slo.attainment),
        runs=tuple(runs[rate] for rate in sorted(runs)),
    )
