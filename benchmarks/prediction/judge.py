"""Runs -> points, ranking and whether the predictions hold."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

from benchmarks.prediction.replay import Compared, Point, point_of
from hpcserve.errors import HpcserveError, NotFoundError
from hpcserve.latency import fit, model_of
from hpcserve.nouns import LatencyFile, Role, Run

__all__ = ["LEAST_PLACEMENTS", "Criterion", "Judgement", "Ranking", "judge", "ranking_of"]

TRANSFER_WITHIN = 0.05
TTFT_WITHIN = 0.15
LEAST_GAP = 0.10
"""Placements whose predicted TTFT differ by less are not ranked against each other."""
LEAST_PLACEMENTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Placements at one load, best first, by median TTFT."""

    load: str
    predicted: tuple[str, ...]
    measured: tuple[str, ...]
    least_gap: float
    """Between neighbours, predicted."""
    swapped: tuple[tuple[str, str], ...]
    """Pairs that the prediction puts `LEAST_GAP` or more apart, in this order, and the measurement in the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing that must hold, and by which numbers it does or does not."""

    what: str
    holds: bool
    numbers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Everything that the runs say about the predictions."""

    fitted_on: str
    simulated: bool
    """The engine was simulated: "measured" figures are its, and no hardware's."""
    latency: LatencyFile
    points: tuple[Point, ...]
    rankings: tuple[Ranking, ...]
    criteria: tuple[Criterion, ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...]
    """What the prediction does not know of the runs."""

    @property
    def holds(self) -> bool:
        """Whether every criterion does."""
        return all(criterion.holds for criterion in self.criteria)


def judge(runs: Sequence[Run], *, fitted_on: str) -> Judgement:
    """Fit on one placement's runs, predict all, compare.

    Raises HpcserveError where the runs cannot tell, NotFoundError where none is of that placement.
    """
    usable = [run for run in runs if run.validity.valid and _is_one_pair(run)]
    left_out = tuple(sorted(f"{run.id}: {_why(run)}" for run in runs if run not in usable))
    mine = [run for run in usable if run.placement == fitted_on]
    if not mine:
        there = ", ".join(sorted({run.placement for run in usable})) or "none that is valid"
        raise NotFoundError(f"no valid run of placement {fitted_on} with one prefill and one decode worker: {there}")
    if len({run.simulated for run in usable}) > 1:
        raise HpcserveError("runs of a simulated engine stand beside measured ones", remedy="give one kind")
    latency = fit(mine)
    model = model_of(latency)
    groups: dict[tuple[str, float], list[Run]] = {}
    for run in usable:
        groups.setdefault((run.placement, run.load.request_rate or 0.0), []).append(run)
    points = tuple(point_of(groups[key], model) for key in sorted(groups))
    rankings = tuple(ranking_of(each) for each in _by_rate(points))
    return Judgement(
        fitted_on=fitted_on,
        simulated=usable[0].simulated,
        latency=latency,
        points=points,
        rankings=rankings,
        criteria=_criteria([point for point in points if point.placement != fitted_on], rankings),
        left_out=left_out,
        remarks=_remarks(usable),
    )


def ranking_of(points: Sequence[Point]) -> Ranking:
    """The ranking of points under one load, two or more."""
    by_prediction = sorted(points, key=lambda point: point.ttft_ms.predicted)
    gaps = [after.ttft_ms.predicted / before.ttft_ms.predicted - 1 for before, after in pairwise(by_prediction)]
    return Ranking(
        load=points[0].load,
        predicted=tuple(point.placement for point in by_prediction),
        measured=tuple(point.placement for point in sorted(points, key=lambda point: point.ttft_ms.measured)),
        least_gap=min(gaps),
        swapped=tuple(
            (before.placement, after.placement)
            for before, after in combinations(by_prediction, 2)
            if after.ttft_ms.predicted >= before.ttft_ms.predicted * (1 + LEAST_GAP)
            and after.ttft_ms.measured <= before.ttft_ms.measured
        ),
    )


def _by_rate(points: Sequence[Point]) -> list[list[Point]]:
    """Points at rates at which two placements or more were measured; alone, prefill hides what placements differ in."""
    rates = sorted({point.request_rate for point in points if point.request_rate is not None})
    groups = [[point for point in points if point.request_rate == rate] for rate in rates]
    return [group for group in groups if len(group) > 1]


def _criteria(judged: Sequence[Point], rankings: Sequence[Ranking]) -> tuple[Criterion, ...]:
    shared = [point for point in judged if point.met > 0]
    handovers = sum(round(point.met * point.transfers) for point in shared)
    return (
        _within("KV transfer", [point.transfer_ms for point in judged], TRANSFER_WITHIN),
        Criterion(
            what="handovers that share their links are among them",
            holds=bool(shared),
            numbers=f"{handovers} handovers at {len(shared)} points",
        ),
        _within("TTFT", [point.ttft_ms for point in judged], TTFT_WITHIN),
        _ranked(rankings),
    )


def _within(what: str, figures: Sequence[Compared], limit: float) -> Criterion:
    errors = [abs(figure.off) for figure in figures]
    numbers = f"median {median(errors):.1%}, worst {max(errors):.1%}, n = {len(errors)} points" if errors else "n = 0"
    return Criterion(
        what=f"predicted {what} of the other placements within {limit:.0%} of measured, median over points",
        holds=bool(errors) and median(errors) <= limit,
        numbers=numbers,
    )


def _ranked(rankings: Sequence[Ranking]) -> Criterion:
    whole = [one for one in rankings if len(one.predicted) >= LEAST_PLACEMENTS and one.least_gap >= LEAST_GAP]
    swapped = [f"{before} before {after} at {one.load}" for one in rankings for before, after in one.swapped]
    told = ", ".join(f"{len(one.predicted)} placements at {one.load}" for one in whole)
    numbers = told or f"no rate has {LEAST_PLACEMENTS} placements that far apart"
    if swapped:
        numbers += f"; measured the other way round: {', '.join(swapped)}"
    return Criterion(
        what=f"placements rank as predicted by TTFT, {LEAST_PLACEMENTS} or more with gaps of {LEAST_GAP:.0%} or more",
        holds=bool(whole) and not swapped,
        numbers=numbers,
    )


def _remarks(runs: Sequence[Run]) -> tuple[str, ...]:
    if not any(run.service.router.pulls_in_turn and run.load.kind == "rate" for run in runs):
        return ()
    remark = (
        "the router of these runs let pulls take turns (router.pulls_in_turn), and the simulated one does not: where "
        "handovers meet, single transfers are predicted too long"
    )
    return (remark,)


def _is_one_pair(run: Run) -> bool:
    roles = [] if run.plan is None else sorted(worker.role for worker in run.plan.workers)
    return roles == sorted((Role.PREFILL, Role.DECODE))


def _why(run: Run) -> str:
    return "; ".join(run.validity.reasons) if not run.validity.valid else "it is not one prefill and one decode worker"
