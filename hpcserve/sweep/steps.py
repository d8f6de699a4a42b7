"""A service as steps inside an allocation that is there already."""

import os
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

from hpcserve.errors import SchedulerError
from hpcserve.nouns import Job, JobHandle, Plan
from hpcserve.scheduler import SchedulerState, clean_environment
from hpcserve.site import fold_hosts

__all__ = ["StepLauncher", "own_allocation"]

_SCRIPT_S = 45.0
"""How long the script may take to end its agents in order: longer than they take to drain their workers."""

_STEP_S = 15.0
"""How long the step may take to end on TERM where the script did not see to it."""

_STEP_NAME = "agents"
"""`--job-name` of the agents' step in the job script."""

_POLL_S = 0.5


def own_allocation() -> tuple[str, str]:
    """Slurm's id of the job this process runs in, and its nodes as a host list; raises SchedulerError outside one."""
    try:
        return os.environ["SLURM_JOB_ID"], os.environ["SLURM_JOB_NODELIST"]
    except KeyError as error:
        raise SchedulerError(f"{error.args[0]} is not set", remedy="this runs inside a Slurm job only") from None


class StepLauncher:
    """Runs the very script that `submit` hands to sbatch, with bash, on some of the nodes of this allocation.

    The script takes its nodes from SLURM_JOB_NODELIST, as it does under sbatch; `plan` says which they are.
    """

    def __init__(self, plan: Plan) -> None:
        self._nodes = plan.nodes
        self._process: subprocess.Popen[bytes] | None = None

    def submit(self, job: Job) -> JobHandle:
        """Start the script; it goes on in the background."""
        allocation, _ = own_allocation()
        restarts = {name: value for name, value in os.environ.items() if name == "SLURM_RESTART_COUNT"}
        with (Path(job.directory) / "logs" / "slurm.out").open("ab") as log:
            self._process = subprocess.Popen(
                ["bash", job.argv[-1]],
                env={
                    **clean_environment(os.environ),
                    **restarts,
                    "SLURM_JOB_ID": allocation,
                    "SLURM_JOB_NODELIST": fold_hosts(self._nodes),
                    "SLURM_JOB_NUM_NODES": str(len(self._nodes)),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return JobHandle(
            name=job.name,
            launcher="slurm",
            id=allocation,
            directory=job.directory,
            submitted_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def state(self, handle: JobHandle) -> SchedulerState:
        """Running while the script runs; then ended or failed by its exit code."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return SchedulerState(word="RUNNING", phase="running", reason="", nodes=self._nodes, source="process")
        return SchedulerState(
            word="FAILED" if code else "COMPLETED",
            phase="failed" if code else "ended",
            reason=f"{handle.name} ended with {code}",
            nodes=self._nodes,
            exit_code=code,
            source="process",
        )

    def cancel(self, handle: JobHandle) -> None:
        """TERM to the script; then TERM, then KILL to the step of agents that outlive it. Returns when all are gone."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        if not self._gone(handle.id, within_s=_SCRIPT_S):
            _signal_steps(handle.id, "TERM")
        if not self._gone(handle.id, within_s=_STEP_S):
            _signal_steps(handle.id, "KILL")
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _gone(self, allocation: str, *, within_s: float) -> bool:
        """Whether script and step end within that time."""
        end_s = time.monotonic() + within_s
        while self._process is not None and (self._process.poll() is None or _steps(allocation)):
            if time.monotonic() >= end_s:
                return False
            time.sleep(_POLL_S)
        return True


def _signal_steps(allocation: str, name: str) -> None:
    for step in _steps(allocation):
        subprocess.run(["scancel", f"--signal={name}", step], check=False, capture_output=True)


def _steps(allocation: str) -> tuple[str, ...]:
    """Ids of the agents' steps that run in the allocation now; there is one at most, services take turns."""
    answer = subprocess.run(
        ["squeue", "--steps", "--noheader", f"--jobs={allocation}", "--format=%i %j"],
        check=False,
        capture_output=True,
        text=True,
    )
    rows = (line.split(maxsplit=1) for line in answer.stdout.splitlines() if line.strip())
    return tuple(row[0] for row in rows if row[1:] == [_STEP_NAME])
