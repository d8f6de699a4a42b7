"""The local launcher: the same job directory, its agents as processes of this host; no Slurm, no root."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from hpcserve.discovery import is_running, start_ticks
from hpcserve.errors import SchedulerError
from hpcserve.nouns import Job, JobHandle
from hpcserve.scheduler.environment import clean_environment
from hpcserve.scheduler.exit_record import state_from_directory
from hpcserve.scheduler.launcher import SchedulerState
from hpcserve.scheduler.processes import Process, alive, family, marked, send

__all__ = ["LocalLauncher"]

_START = 'setsid bash "$1" </dev/null >>"$2" 2>&1 & echo $!'
"""In a session of its own, so that neither the terminal's end nor Ctrl-C reaches it; the shell prints its pid."""

_ID = re.compile(r"^local-(\d+)-(\d+)@(.+)$")
_GRACE_S = 45.0
"""From TERM to KILL: longer than the agents take to drain their workers."""
_LEFTOVERS_S = 5.0
_POLL_S = 0.1
_MARK = "HPCSERVE_JOB"
"""agent.sh sets it to the job directory for all that it starts."""
_ENDED = 0
"""Stands for the start time of a leader that had ended, in order, before it could be looked at."""


class LocalLauncher:
    """Jobs of this host. An id is `local-PID-TICKS@HOST`: a pid alone may be another process's by now."""

    def submit(self, job: Job) -> JobHandle:
        """Start the job's leader; raises SchedulerError where it does not even live to be looked at."""
        log = Path(job.directory) / "logs" / "local.out"
        done = subprocess.run(
            ["bash", "-c", _START, "bash", job.argv[-1], str(log)],
            env=clean_environment(os.environ),
            stdout=subprocess.PIPE,
            check=True,
        )
        pid = int(done.stdout)
        ticks = start_ticks(pid)
        if ticks is None and state_from_directory(Path(job.directory)) is None:
            said = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
            raise SchedulerError(f"{job.name} ended as soon as it was started: {said or 'it said nothing'}")
        return JobHandle(
            name=job.name,
            launcher="local",
            id=f"local-{pid}-{ticks or _ENDED}@{socket.gethostname()}",
            directory=job.directory,
            submitted_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def state(self, handle: JobHandle) -> SchedulerState:
        """Running while its leader runs; then what its exit record says."""
        leader, host = _leader(handle)
        if host != socket.gethostname():
            return SchedulerState(
                word="UNKNOWN", phase="unknown", reason=f"it was started on {host}: ask there", source="nothing"
            )
        if is_running(leader.pid, leader.ticks):
            return SchedulerState(word="RUNNING", phase="running", reason="", source="process")
        said = state_from_directory(Path(handle.directory))
        if said is not None:
            return said
        left = len(marked(_MARK, handle.directory))
        still = f"; {left} of its processes still run: `hpcserve cancel {handle.name}` ends them" if left else ""
        return SchedulerState(
            word="FAILED",
            phase="failed",
            reason=f"its leader was killed before it could end the job{still}",
            source="process",
        )

    def cancel(self, handle: JobHandle) -> None:
        """TERM to the leader, which passes it on; KILL to whatever of the job still runs after the time of grace."""
        leader, host = _leader(handle)
        if host != socket.gethostname():
            raise SchedulerError(f"{handle.name} was started on {host}", remedy="cancel it there")
        members = _members(leader, handle)
        send({leader}, signal.SIGTERM)
        _await_end({leader}, _GRACE_S)
        # The leader has seen its agents end. Whoever is left was not theirs any more, or the leader was killed before.
        members |= _members(leader, handle)
        send(members, signal.SIGTERM)
        _await_end(members, _LEFTOVERS_S)
        end_s = time.monotonic() + _LEFTOVERS_S
        while (left := alive(members | _members(leader, handle))) and time.monotonic() < end_s:
            send(left, signal.SIGKILL)
            time.sleep(_POLL_S)
        if left:
            raise SchedulerError(
                f"{handle.name}: {len(left)} processes survive SIGKILL: {sorted(process.pid for process in left)}"
            )


def _await_end(processes: Iterable[Process], longest_s: float) -> None:
    end_s = time.monotonic() + longest_s
    while alive(processes) and time.monotonic() < end_s:
        time.sleep(_POLL_S)


def _leader(handle: JobHandle) -> tuple[Process, str]:
    match = _ID.match(handle.id)
    if match is None:
        raise SchedulerError(f"{handle.id!r} is no id of a local job")
    return Process(pid=int(match[1]), ticks=int(match[2])), match[3]


def _members(leader: Process, handle: JobHandle) -> frozenset[Process]:
    """Everything that belongs to the job: the leader's descendants, and whoever carries the job's mark."""
    below = family(leader.pid) if alive({leader}) else frozenset()
    return below | marked(_MARK, handle.directory)
