"""Runs -> Report: what belongs together is pooled; what is invalid is listed and never counted."""

from collections.abc import Iterable, Sequence

import pandas as pd

from hpcserve.errors import HpcserveError
from hpcserve.nouns import (
    Goodput,
    InvalidRun,
    Percentiles,
    PlacementResult,
    Plan,
    RateResult,
    Report,
    Run,
    TransferResult,
    Validity,
)
from hpcserve.report.advice import recommendation
from hpcserve.report.attainment import is_good, wilson_interval

__all__ = ["report_of"]

_MS_PER_S = 1e3


def report_of(runs: Iterable[Run]) -> Report:
    """The report of the runs of one sweep.

    Raises HpcserveError where there is no run, or where runs differ in sweep, SLO or request lengths: shares of
    requests that meet different limits cannot stand in one table.
    """
    every = sorted((_judged(run) for run in runs), key=lambda run: (run.placement, run.id))
    if not every:
        raise HpcserveError("there is no run to report", remedy="give the results folder of a sweep")
    _refuse_mixture(every)
    first = every[0]
    placements = tuple(
        _placement(name, simulated=simulated, runs=group) for (name, simulated), group in _grouped(every).items()
    )
    return Report(
        sweep=first.sweep,
        site=first.site,
        slo=first.service.slo,
        input_tokens=first.load.input_tokens,
        cached_prefix_tokens=max(run.load.cached_prefix_tokens for run in every),
        output_tokens=first.load.output_tokens,
        placements=placements,
        invalid=tuple(
            InvalidRun(id=run.id, placement=run.placement, reasons=run.validity.reasons or ("no reason was recorded",))
            for run in every
            if not run.validity.valid
        ),
        recommendation=recommendation(placements, slo=first.service.slo),
    )


def _judged(run: Run) -> Run:
    """The run, invalid also where it says otherwise and has nothing to count: files come from anywhere."""
    if not run.validity.valid or (run.samples and run.duration_s > 0 and run.plan is not None):
        return run
    return run.model_copy(update={"validity": Validity(valid=False, reasons=("it has no requests, time or plan",))})


def _refuse_mixture(runs: Sequence[Run]) -> None:
    questions = {
        "sweeps": {run.sweep for run in runs},
        "SLOs": {str(run.service.slo) for run in runs},
        "numbers of input tokens": {str(run.load.input_tokens) for run in runs},
        "numbers of output tokens": {str(run.load.output_tokens) for run in runs},
    }
    for what, answers in questions.items():
        if len(answers) > 1:
            raise HpcserveError(
                f"runs of different {what} cannot be compared: {'; '.join(sorted(answers))}",
                remedy="give the results folder of one sweep",
            )


def _grouped(runs: Sequence[Run]) -> dict[tuple[str, bool], list[Run]]:
    """Valid runs by placement; what was simulated stands apart from what was measured."""
    groups: dict[tuple[str, bool], list[Run]] = {}
    for run in runs:
        if run.validity.valid and run.plan is not None:
            groups.setdefault((run.placement, run.simulated), []).append(run)
    return groups


def _placement(name: str, *, simulated: bool, runs: Sequence[Run]) -> PlacementResult:
    plan = next(run.plan for run in runs if run.plan is not None)
    by_rate: dict[float, list[Run]] = {}
    for run in runs:
        if run.load.request_rate is not None:
            by_rate.setdefault(run.load.request_rate, []).append(run)
    rates = tuple(_rate(rate, by_rate[rate]) for rate in sorted(by_rate))
    alone = [run for run in runs if run.load.kind == "alone"]
    loaded = (_transfer_under_load(rate, by_rate[rate]) for rate in sorted(by_rate))
    return PlacementResult(
        name=f"{name} (simulated)" if simulated else name,
        simulated=simulated,
        mode=plan.mode,
        gpus=_gpus(plan),
        plan=plan,
        goodput=Goodput.first_crossing(
            [(result.request_rate, result.attainment) for result in rates], target=runs[0].service.slo.attainment
        ),
        rates=rates,
        transfers=tuple(result for result in (_transfer_alone(alone), *loaded) if result is not None),
    )


def _gpus(plan: Plan) -> int:
    return sum(len(rank.gpus) for worker in plan.workers for rank in worker.ranks)


def _rate(request_rate: float, runs: Sequence[Run]) -> RateResult:
    frame = pd.DataFrame(
        {
            "run": run.id,
            "ttft_ms": sample.ttft_ms,
            "tpot_ms": sample.tpot_ms,
            "good": is_good(sample, run.service.slo),
        }
        for run in runs
        for sample in run.samples
    )
    good, total = int(frame["good"].sum()), len(frame)
    durations = pd.Series({run.id: run.duration_s for run in runs})
    each = frame.groupby("run")["good"].sum() / durations
    low, high = wilson_interval(good, total)
    return RateResult(
        request_rate=request_rate,
        repetitions=len(runs),
        requests=total,
        good=good,
        attainment=good / total,
        attainment_low=low,
        attainment_high=high,
        good_per_s=good / float(durations.sum()),
        good_per_s_min=float(each.min()),
        good_per_s_max=float(each.max()),
        ttft_ms=_percentiles(frame["ttft_ms"]),
        tpot_ms=_percentiles(frame["tpot_ms"]),
    )


def _percentiles(times: "pd.Series[float]") -> Percentiles:
    known = times.dropna().astype(float)
    if known.empty:
        return Percentiles(p50=None, p90=None, p99=None)
    return Percentiles(p50=float(known.quantile(0.5)), p90=float(known.quantile(0.9)), p99=float(known.quantile(0.99)))


def _transfer_alone(runs: Sequence[Run]) -> TransferResult | None:
    times = [each for run in runs if run.transfers is not None for each in run.transfers.each_ms]
    return _transfer("alone", runs, times, count=len(times)) if times else None


def _transfer_under_load(rate: float, runs: Sequence[Run]) -> TransferResult | None:
    moved = [run.transfers for run in runs if run.transfers is not None and run.transfers.count]
    means = [each.seconds / each.count * _MS_PER_S for each in moved]
    return _transfer(rate, runs, means, count=sum(each.count for each in moved)) if means else None


def _transfer(load: float | str, runs: Sequence[Run], times: Sequence[float], *, count: int) -> TransferResult:
    predicted = next((run.predicted_transfer_ms for run in runs if run.predicted_transfer_ms is not None), None)
    series = pd.Series(times)
    typical = float(series.median() if load == "alone" else series.mean())
    return TransferResult.model_validate(
        {
            "load": load,
            "transfers": count,
            "predicted_ms": predicted,
            "typical_ms": typical,
            "min_ms": float(series.min()),
            "max_ms": float(series.max()),
            "ratio": None if predicted is None else typical / predicted,
        }
    )
