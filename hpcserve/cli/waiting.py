"""Waiting for a job with a sign of life: a status line on a terminal, a line for each change elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from hpcserve.discovery import log_tail
from hpcserve.errors import ServiceError, TimeoutExpiredError, UnverifiedError
from hpcserve.nouns import JobHandle, JobPhase, JobState
from hpcserve.scheduler import Launcher, SchedulerState, job_state, launcher_for, router_answers

__all__ = ["await_end", "await_ready", "failure_of", "shown_waiting", "told_where_it_runs"]

_LOOK_S = 1.0
_ASK_S = 5.0
"""Between two questions to the scheduler: squeue(1) asks not to be called in tight loops."""
_UNKNOWN_S = 120.0
"""How long a scheduler may know nothing: slurmctld is started again, or its standby takes over, within that."""

Show = Callable[[str], None]


def await_ready(directory: Path, handle: JobHandle, *, timeout_s: float | None, show: Show) -> JobState:
    """The job's state once its router has proved the service and answers.

    Raises ServiceError with the end of the failed worker's log where it fails or ends, TimeoutExpiredError after
    `timeout_s` (None: no limit), UnverifiedError where nobody has known for two minutes what became of it.
    """
    launcher = _Patient(launcher_for(handle.launcher))
    known_s = time.monotonic()
    end_s = None if timeout_s is None else known_s + timeout_s
    while True:
        state = job_state(directory, handle, launcher=launcher, answers=router_answers)
        if state.phase == JobPhase.READY:
            return state
        if state.phase != JobPhase.UNKNOWN:
            known_s = time.monotonic()
        elif time.monotonic() - known_s >= _UNKNOWN_S:
            raise UnverifiedError(_line(state), remedy=f"see what it wrote: `hpcserve logs {handle.name}`")
        if state.phase in {JobPhase.FAILED, JobPhase.ENDED} or any(w.phase == "failed" for w in state.workers):
            raise failure_of(state)
        if end_s is not None and time.monotonic() >= end_s:
            raise TimeoutExpiredError(
                f"{handle.name} is not ready after {timeout_s:g} s: {_line(state)}",
                remedy=f"look with `hpcserve status {handle.name}`, or wait longer",
            )
        show(_line(state))
        time.sleep(_LOOK_S)


def await_end(handle: JobHandle, *, timeout_s: float, show: Show) -> SchedulerState:
    """The scheduler's last word on a job that was told to end; raises TimeoutExpiredError."""
    launcher = launcher_for(handle.launcher)
    end_s = time.monotonic() + timeout_s
    while True:
        state = launcher.state(handle)
        if state.phase not in {"pending", "running"}:
            return state
        if time.monotonic() >= end_s:
            raise TimeoutExpiredError(f"{handle.name} is still {state.word} after {timeout_s:g} s")
        show(f"{handle.name}: {state.word}")
        time.sleep(_LOOK_S)


def failure_of(state: JobState) -> ServiceError:
    """What is told of a job that failed: the reason, then the end of each failed worker's log."""
    parts = [
        f"{state.handle.name} {state.phase.value} ({state.scheduler_state})"
        + (f": {state.reason}" if state.reason else "")
    ]
    for worker in state.workers:
        if worker.phase == "failed":
            parts.append(f"{worker.id} on {worker.node} failed: {worker.detail}")
            parts += [f"  {line}" for line in worker.log_tail]
    if len(parts) == 1:
        directory = Path(state.handle.directory)
        script = "slurm.out" if state.handle.launcher == "slurm" else "local.out"
        for name in (script, *(path.name for path in sorted((directory / "logs").glob("agent.*.log")))):
            tail = log_tail(directory / "logs" / name)
            if tail:
                parts.append(f"end of logs/{name}:")
                parts += [f"  {line}" for line in tail]
    if state.phase not in {JobPhase.FAILED, JobPhase.ENDED}:
        parts.append(f"the job still holds its nodes; `hpcserve cancel {state.handle.name}` ends it")
    parts.append(f"see all of it with `hpcserve logs {state.handle.name}`")
    return ServiceError("\n".join(parts))


@contextmanager
def told_where_it_runs(handle: JobHandle) -> Iterator[None]:
    """On Ctrl-C, says that the job goes on and how it is found again: the wait ends, not the service."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(
            f"\n{handle.name} goes on in {handle.directory}: "
            f"`hpcserve wait {handle.name}`, or end it with `hpcserve cancel {handle.name}`",
            err=True,
        )
        raise


@contextmanager
def shown_waiting() -> Iterator[Show]:
    """Shows what is waited for while the block runs."""
    if sys.stderr.isatty():
        with Console(stderr=True).status("") as status:
            yield lambda text: status.update(escape(text))
        return
    last = ""

    def show(text: str) -> None:
        nonlocal last
        if text != last:
            last = text
            click.echo(text, err=True)

    yield show


def _line(state: JobState) -> str:
    return f"{state.handle.name}: {state.phase.value}" + (f", {state.reason}" if state.reason else "")


class _Patient:
    """A launcher that asks the scheduler at most every few seconds; the job directory may be looked at more often."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._asked_s = 0.0
        self._state: SchedulerState | None = None
        self.submit = launcher.submit
        self.cancel = launcher.cancel

    def state(self, handle: JobHandle) -> SchedulerState:
        """The last answer, or a new one where that is old."""
        now_s = time.monotonic()
        if self._state is None or now_s - self._asked_s >= _ASK_S:
            self._state, self._asked_s = self._launcher.state(handle), now_s
        return self._state
