"""The job that a sweep submitted, kept in its results folder: a later start finds it and starts no second one."""

import socket
import time
from datetime import UTC, datetime
from typing import Any

import submitit
from submitit.core.utils import JobPaths

from hpcserve.discovery import start_ticks
from hpcserve.errors import SchedulerError
from hpcserve.nouns import JobHandle
from hpcserve.scheduler import SchedulerState, launcher_for
from hpcserve.sweep.results import Results
from hpcserve.sweep.task import end_leftovers

__all__ = ["cancel_job", "handle_of", "living_job", "paths_of", "state_of"]

_LOOK_S = 1.0


def handle_of(job: "submitit.Job[Any]", store: Results, *, local: bool) -> JobHandle:
    """The job as the launchers know it: Slurm's id, or pid, start and host of submitit's local controller."""
    identity = job.job_id
    if local:
        # 0: it has ended already, and no living process started at boot.
        identity = f"local-{job.job_id}-{start_ticks(int(job.job_id)) or 0}@{socket.gethostname()}"
    return JobHandle(
        name=store.folder.name,
        launcher="local" if local else "slurm",
        id=identity,
        directory=str(store.folder),
        submitted_utc=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def living_job(store: Results) -> JobHandle | None:
    """The job of an earlier start that still waits or measures, None where there is none.

    Raises SchedulerError for a local job of another host, which cannot be looked at from here; HpcserveError
    for a record that cannot be read. A job that Slurm does not know any more has ended.
    """
    handle = store.read_job()
    if handle is None:
        return None
    state = state_of(handle)
    if state.phase == "unknown" and handle.launcher == "local":
        raise SchedulerError(
            f"the job of this sweep cannot be looked at from here: {state.reason}",
            remedy=f"run the same command there; if it has ended, remove {store.job_file}",
        )
    return handle if state.phase in {"pending", "running"} else None


def state_of(handle: JobHandle) -> SchedulerState:
    """From squeue or the process; submitit's own state needs sacct, or to be the process's parent."""
    return launcher_for(handle.launcher).state(handle)


def cancel_job(handle: JobHandle, store: Results) -> None:
    """End the job, wait until it has, and end services that it left on this host because it was killed itself."""
    try:
        launcher_for(handle.launcher).cancel(handle)
        while state_of(handle).phase in {"pending", "running"}:  # Slurm takes its time after scancel
            time.sleep(_LOOK_S)
    finally:
        if handle.launcher == "local":
            end_leftovers(store)


def paths_of(handle: JobHandle, store: Results) -> JobPaths:
    """Where submitit keeps result and logs of the job's only task."""
    job_id = handle.id.removeprefix("local-").partition("-")[0]
    return JobPaths(store.submitit, job_id=job_id, task_id=0)
