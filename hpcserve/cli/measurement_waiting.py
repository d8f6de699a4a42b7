"""Waiting for a measuring job, and what it measured, from its directory and what Slurm says of it."""

import time
from datetime import UTC, datetime

from hpcserve.cli.waiting import shown_waiting
from hpcserve.deploy import SubmittedMeasurement
from hpcserve.discovery import log_tail, read_dir_record
from hpcserve.errors import ServiceError
from hpcserve.fabric import fabric_of
from hpcserve.measure import PROGRESS_FILE, Progress, causes_of, day_of_readings, measurement_of, read_readings
from hpcserve.nouns import Measurement
from hpcserve.scheduler import SchedulerState, launcher_for
from hpcserve.wire import UnreadableRecordError

__all__ = ["attempts_of", "await_measurement", "what_was_measured"]

_LOOK_S = 0.5
_ASK_S = 3.0
"""Between two questions to the scheduler: squeue(1) asks not to be called in tight loops."""
_UNKNOWN_S = 120.0
_MOST_CAUSES = 8


def await_measurement(submitted: SubmittedMeasurement) -> SchedulerState:
    """The job's last state; meanwhile its progress is shown."""
    handle, rounds = submitted.handle, len(submitted.errand.rounds)
    launcher = launcher_for("slurm")
    state = launcher.state(handle)
    asked_s = known_s = time.monotonic()
    with shown_waiting() as show:
        while state.phase in {"pending", "running", "unknown"}:
            progress = _progress(submitted)
            if progress is not None and progress.done < progress.of:
                again = ", second attempt" if progress.attempt > 1 else ""
                show(f"round {progress.done + 1} of {progress.of}{again}: {progress.text}")
            elif progress is not None:
                show(f"all {progress.of} rounds are through; waiting for the end of job {handle.id}")
            else:
                wait = f", {state.reason}" if state.reason else ""
                show(f"job {handle.id}: {state.word}{wait}; {rounds} rounds to measure")
            time.sleep(_LOOK_S)
            now_s = time.monotonic()
            ends = progress is not None and progress.done == progress.of
            if ends or now_s - asked_s >= _ASK_S:
                state, asked_s = launcher.state(handle), now_s
            known_s = now_s if state.phase != "unknown" else known_s
            if now_s - known_s > _UNKNOWN_S:
                return state
    return state


def _progress(submitted: SubmittedMeasurement) -> Progress | None:
    try:
        return read_dir_record(submitted.directory, PROGRESS_FILE, Progress)
    except (OSError, UnreadableRecordError):
        return None


def attempts_of(submitted: SubmittedMeasurement) -> list[str]:
    """What the job's script says of attempts that failed."""
    return [line for line in _log(submitted) if line.startswith("measure.sbatch: ")]


def _log(submitted: SubmittedMeasurement) -> tuple[str, ...]:
    return log_tail(submitted.directory / "logs" / "slurm.out")


def what_was_measured(submitted: SubmittedMeasurement, state: SchedulerState) -> Measurement:
    """What was measured, also where the job failed half-way; raises ServiceError where that is nothing.

    Its day is that of the last reading, whenever it is fetched.
    """
    readings = read_readings(submitted.directory)
    trouble = () if state.word == "COMPLETED" else (f"the job ended with {state.word} {state.reason}".rstrip(),)
    measurement = measurement_of(
        submitted.errand,
        readings,
        fabric=fabric_of(submitted.site),
        day=day_of_readings(submitted.directory) or datetime.now(UTC).date(),
        trouble=trouble,
    )
    if not measurement.pairs:
        parts = [f"nothing was measured: Slurm says {state.word}{f', {state.reason}' if state.reason else ''}"]
        parts += causes_of(measurement.missing, _log(submitted))[:_MOST_CAUSES]
        parts += ["the end of its log:", *(f"  {line}" for line in _log(submitted))]
        raise ServiceError("\n".join(parts), remedy=f"see {submitted.directory}/logs")
    return measurement
