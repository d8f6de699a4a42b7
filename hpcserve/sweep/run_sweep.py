"""The login side of a sweep: order, submit or find again, watch, and end it on Ctrl-C, SIGTERM and SIGHUP."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import submitit
from pydantic import Field

from hpcserve.bench import BusyLimits
from hpcserve.deploy import Planned, plan_service, read_text
from hpcserve.discovery import log_tail, typed_path
from hpcserve.errors import HpcserveError, SchedulerError, ServiceError
from hpcserve.nouns import JobHandle, Noun, Run, Sweep
from hpcserve.render import directive_lines
from hpcserve.site import load_sweep
from hpcserve.sweep.executors import (
    ExecutorName,
    executor_for,
    explain_failure,
    submitted_by_clean_environment,
)
from hpcserve.sweep.grid import missing_points, points_of
from hpcserve.sweep.results import Order, Results
from hpcserve.sweep.shared import service_of, share, shared_plan
from hpcserve.sweep.signals import exit_on_signals, ignore_further_signals
from hpcserve.sweep.submitted import cancel_job, handle_of, living_job, paths_of, state_of
from hpcserve.sweep.task import measure_all

__all__ = ["Outcome", "run_sweep"]

Show = Callable[[str], None]

_LOOK_S = 1.0
_ASK_S = 5.0
"""Between two questions to the scheduler: squeue(1) asks not to be called in tight loops."""


class Outcome(Noun):
    """What a sweep left: its results folder, and its runs by validity."""

    schema_: Annotated[Literal["hpcserve.sweep-outcome/1"], Field(alias="schema")] = "hpcserve.sweep-outcome/1"
    results: str
    valid: tuple[str, ...]
    invalid: dict[str, tuple[str, ...]]
    """Reasons by run id."""


def run_sweep(
    sweep_file: Path,
    *,
    site: str,
    executor: ExecutorName,
    results: Path,
    retry_invalid: bool,
    show: Show,
    limits: BusyLimits,
) -> Outcome:
    """Measure what is missing of the sweep, and return when it is there.

    Where the job of an earlier start still lives, it is watched, and no second one is started.

    Raises InputError, NotFoundError or PlacementError before anything is changed; SchedulerError, MissingToolError or
    ServiceError where the job is refused or ends before everything is measured. KeyboardInterrupt passes through once
    the job has been cancelled; SIGTERM and SIGHUP become SystemExit (143, 129) likewise. Every run that was written is
    whole.
    """
    sweep = load_sweep(read_text(sweep_file), source=str(sweep_file))
    planned = plan_service(sweep_file.parent / sweep.service, site=site)
    planned.model.require_whole()
    store = Results(folder=typed_path(results).absolute())
    if not _missing(sweep, planned, store, retry_invalid=retry_invalid):
        show("everything is measured already")
        return _outcome(sweep, planned, store)
    with exit_on_signals():
        living = living_job(store) if store.folder.is_dir() else None
        if living is not None:
            show(f"job {living.id} of an earlier start still runs: attached to it, Ctrl-C cancels it")
            _see_through(living, store, show)
            log_of: JobHandle | None = living
        else:
            order = _order(sweep, planned, executor, retry_invalid=retry_invalid, limits=limits)
            log_of = _measure(order, executor, store, show)
    left = _missing(sweep, planned, store, retry_invalid=False)
    if left:
        log = "\n".join(log_tail(paths_of(log_of, store).stderr)) if log_of is not None else ""
        raise ServiceError(
            f"the sweep's job ended before {len(left)} of its runs were measured: {log or 'it wrote no log'}",
            remedy=explain_failure(log),
        )
    return _outcome(sweep, planned, store)


def _order(sweep: Sweep, planned: Planned, executor: ExecutorName, *, retry_invalid: bool, limits: BusyLimits) -> Order:
    return Order(
        sweep=sweep,
        service=planned.service,
        site=planned.site,
        shape=planned.shape,
        launcher="slurm" if executor == "slurm" else "local",
        placements=share(sweep, planned),
        retry_invalid=retry_invalid,
        limits=limits,
    )


def _measure(order: Order, executor: ExecutorName, store: Results, show: Show) -> JobHandle | None:
    """Submit a job and see it through; None where this very process did the work."""
    directives = _directives(order, store) if executor == "slurm" else ()
    chosen = executor_for(executor, folder=store.submitit, directives=directives)
    store.make()
    store.forget_endings()
    store.write_order(order)
    if executor == "debug":
        watch = _Watch(store, show=show)
        job = _submit(chosen, store)
        failure = job.exception()
        if failure is not None:
            raise failure
        watch.look()
        return None
    job = _submit(chosen, store)
    handle = handle_of(job, store, local=executor == "local")
    _see_through(handle, store, show, record=True)
    if executor == "local":
        job.done()  # takes the child's exit code: no zombie stays
    return handle


def _see_through(handle: JobHandle, store: Results, show: Show, *, record: bool = False) -> None:
    """Watch the job until it has ended; whatever ends the watching ends the job first. `record`: it is a new one."""
    watch = _Watch(store, show=show)
    try:
        if record:
            store.write_job(handle)
        _await(handle, store, watch, show)
    except BaseException:
        ignore_further_signals()
        with contextlib.suppress(OSError):  # after SIGHUP there is no terminal to write to
            show("cancelling the job")
        cancel_job(handle, store)
        raise
    watch.look()


def _missing(sweep: Sweep, planned: Planned, store: Results, *, retry_invalid: bool) -> tuple[str, ...]:
    """Ids of what is to be measured; raises HpcserveError where the folder holds another sweep's runs."""
    runs = store.runs()
    for run in runs.values():
        if run.sweep != sweep.name:
            raise HpcserveError(f"{store.folder} holds runs of sweep {run.sweep}", remedy="choose another --results")
    missing = []
    for placement in sweep.placements:
        service = service_of(planned.service, placement)
        points = points_of(sweep, placement, service=service, site=planned.site)
        missing += [point.id for point in missing_points(points, runs, retry_invalid=retry_invalid)]
    return tuple(missing)


def _directives(order: Order, store: Results) -> tuple[str, ...]:
    """Those of a `submit` of the same service, for all nodes of the sweep and its time."""
    service = order.service.model_copy(update={"time": order.sweep.time})
    directory = str(store.jobs / order.sweep.name)
    return directive_lines(plan=shared_plan(order.placements), site=order.site, service=service, directory=directory)


def _submit(executor: submitit.Executor, store: Results) -> "submitit.Job[str]":
    try:
        with submitted_by_clean_environment():
            return executor.submit(measure_all, str(store.folder))
    except submitit.core.utils.FailedJobError as error:
        raise SchedulerError(f"the sweep's job was refused: {error}") from None


def _await(handle: JobHandle, store: Results, watch: "_Watch", show: Show) -> None:
    """Until the job has ended; what it raised is in its log."""
    show(f"job {handle.id}, results in {store.folder}")
    result = paths_of(handle, store).result_pickle
    asked_s = 0.0
    while not result.exists():
        watch.look()
        if time.monotonic() - asked_s >= _ASK_S:
            asked_s = time.monotonic()
            state = state_of(handle)
            if state.phase == "pending":
                show(f"job {handle.id} waits: {state.reason or state.word}")
            if state.phase in {"ended", "failed"}:
                # The result may reach this node later than the end of the job does.
                time.sleep(_LOOK_S)
                return
        time.sleep(_LOOK_S)


def _outcome(sweep: Sweep, planned: Planned, store: Results) -> Outcome:
    runs = store.runs()
    order = [
        runs[point.id]
        for placement in sweep.placements
        for point in points_of(sweep, placement, service=service_of(planned.service, placement), site=planned.site)
        if point.id in runs
    ]
    return Outcome(
        results=str(store.folder),
        valid=tuple(run.id for run in order if run.validity.valid),
        invalid={run.id: run.validity.reasons for run in order if not run.validity.valid},
    )


class _Watch:
    """Tells each run once, when its file appears."""

    def __init__(self, store: Results, *, show: Show) -> None:
        self._store = store
        self._show = show
        self._told = {name: run.ended_utc for name, run in store.runs().items()}

    def look(self) -> None:
        """Tell what is new; a run that was measured again is new."""
        for name, run in self._store.runs().items():
            if self._told.get(name) != run.ended_utc:
                self._told[name] = run.ended_utc
                self._show(_line(run))


def _line(run: Run) -> str:
    if not run.validity.valid:
        return f"{run.id}: invalid: {'; '.join(run.validity.reasons)}"
    ttfts = sorted(sample.ttft_ms for sample in run.samples if sample.ttft_ms is not None)
    moved = ""
    if run.transfers is not None and run.transfers.count:
        moved = f", KV {run.transfers.seconds / run.transfers.count * 1e3:.1f} ms a transfer"
    return f"{run.id}: {len(run.samples)} requests, TTFT {ttfts[len(ttfts) // 2]:.0f} ms median{moved}"
