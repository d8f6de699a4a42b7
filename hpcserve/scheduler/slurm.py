"""Slurm as a launcher: sbatch, squeue, sacct, scancel."""

import time
from datetime import UTC, datetime
from pathlib import Path

from hpcserve.errors import MissingToolError, SchedulerError
from hpcserve.nouns import Job, JobHandle
from hpcserve.scheduler.commands import Answer, ask
from hpcserve.scheduler.exit_record import state_from_directory
from hpcserve.scheduler.launcher import SchedulerState
from hpcserve.scheduler.slurm_text import (
    SACCT_FORMAT,
    SQUEUE_FORMAT,
    explain_refusal,
    is_unknown_job,
    job_row,
    parse_sacct,
    parse_squeue,
    parse_submitted,
)
from hpcserve.scheduler.states import phase_of, reason_in_words

__all__ = ["SlurmLauncher"]

_NO_SUCH_COMMAND = 127

# The agents let requests in flight end, and stop the engines: as long as the local launcher gives.
_GRACE_S = 45.0
_POLL_S = 0.5


class SlurmLauncher:
    """Jobs of the cluster whose commands are on PATH."""

    def submit(self, job: Job) -> JobHandle:
        """Hand the script to sbatch; raises SchedulerError with Slurm's own words and what to do about them."""
        answer = ask(*job.argv)
        if answer.code == _NO_SUCH_COMMAND:
            raise MissingToolError(
                f"there is no {job.argv[0]} on this machine",
                remedy="run this on a login node of the cluster, or use --launcher local",
            )
        identity = parse_submitted(answer.output)
        if answer.code != 0 or identity is None:
            said = answer.complaint or answer.output.strip() or f"exit code {answer.code}"
            raise SchedulerError(f"{job.argv[0]} refused {job.name}: {said}", remedy=explain_refusal(said))
        return JobHandle(
            name=job.name,
            launcher="slurm",
            id=identity,
            directory=job.directory,
            submitted_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def state(self, handle: JobHandle) -> SchedulerState:
        """Ask squeue, for jobs it has forgotten sacct, where neither knows the job's own exit record."""
        job, cluster = _split(handle.id)
        queue = ask("squeue", "--noheader", "--states=all", f"--jobs={job}", f"--format={SQUEUE_FORMAT}", *cluster)
        row = job_row(parse_squeue(queue.output), job) if queue.code == 0 else None
        if row is not None:
            start = f", expected to start {row.start}" if row.start and phase_of(row.state) == "pending" else ""
            return SchedulerState(
                word=row.state,
                phase=phase_of(row.state),
                reason=_reason(row.state, row.reason) + start,
                nodes=row.nodes,
                source="squeue",
            )
        accounts = ask("sacct", "--parsable2", "--duplicates", f"--jobs={job}", f"--format={SACCT_FORMAT}", *cluster)
        row = job_row(parse_sacct(accounts.output), job) if accounts.code == 0 else None
        if row is not None:
            return SchedulerState(
                word=row.state,
                phase=phase_of(row.state),
                reason="",
                nodes=row.nodes,
                exit_code=row.exit_code if phase_of(row.state) in {"ended", "failed"} else None,
                source="sacct",
            )
        return state_from_directory(Path(handle.directory)) or SchedulerState(
            word="UNKNOWN", phase="unknown", reason=_nobody_knows(queue), source="nothing"
        )

    def cancel(self, handle: JobHandle) -> None:
        """Tell a running job's script to stop and give it the time to; then scancel.

        A job that Slurm does not know any more has ended already.
        """
        job, cluster = _split(handle.id)
        if self.state(handle).phase == "running":
            ask("scancel", "--batch", "--signal=TERM", *cluster, job)
            end_s = time.monotonic() + _GRACE_S
            while self.state(handle).phase == "running" and time.monotonic() < end_s:
                time.sleep(_POLL_S)
        answer = ask("scancel", *cluster, job)
        if answer.code == _NO_SUCH_COMMAND:
            raise MissingToolError("there is no scancel on this machine", remedy="run this where the job was submitted")
        if answer.code != 0 and not is_unknown_job(answer.complaint):
            raise SchedulerError(f"scancel {job}: {answer.complaint}", remedy=explain_refusal(answer.complaint))


def _split(identity: str) -> tuple[str, tuple[str, ...]]:
    """Job id and the option for its cluster, of `ID` or `ID;CLUSTER`."""
    job, _, cluster = identity.partition(";")
    return job, ((f"--clusters={cluster}",) if cluster else ())


def _reason(state: str, reason: str) -> str:
    """Slurm says `None` for a running job, where there is nothing to explain."""
    return "" if reason == "None" and phase_of(state) != "pending" else reason_in_words(reason)


def _nobody_knows(queue: Answer) -> str:
    if queue.code == 0 or is_unknown_job(queue.complaint):
        return "Slurm does not know this job any more, and it left no word of how it ended"
    return f"Slurm cannot be asked: {queue.complaint}"
