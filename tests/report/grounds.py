"""Runs that a report is made of."""

from hpcserve.nouns import Run, Validity
from tests.synthetic import FAR_MS, NEAR_MS, alone_run, rate_run

__all__ = ["FAST_MS", "SLOW_MS", "near_and_far"]

FAST_MS, SLOW_MS = 400.0, 2000.0


def near_and_far() -> list[Run]:
    """Near meets the SLO nearly always, far hardly ever; one run is invalid."""
    busy = Validity(valid=False, reasons=("the machine was too busy to measure: <b>27</b> % of the time",))
    return [
        alone_run(
            placement="near", each_ms=[NEAR_MS * factor for factor in (0.98, 1.0, 1.0, 1.0, 1.0, 1.01, 1.02, 1.2)]
        ),
        alone_run(placement="far", each_ms=[FAR_MS] * 8),
        rate_run(placement="near", rate=1.0, ttfts_ms=[FAST_MS] * 19 + [SLOW_MS]),
        rate_run(placement="near", rate=3.0, ttfts_ms=[FAST_MS] * 54 + [SLOW_MS] * 6),
        rate_run(placement="far", rate=1.0, ttfts_ms=[FAST_MS] * 10 + [SLOW_MS] * 10),
        rate_run(placement="far", rate=3.0, ttfts_ms=[SLOW_MS] * 60, validity=busy),
    ]
