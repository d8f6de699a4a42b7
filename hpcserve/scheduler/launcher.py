"""What a launcher does, and what it says of a job."""

from dataclasses import dataclass
from typing import Literal, Protocol

from hpcserve.nouns import Job, JobHandle

__all__ = ["Launcher", "Phase", "SchedulerState"]

Phase = Literal["pending", "running", "ended", "failed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerState:
    """Where a job is, as its scheduler knows it."""

    word: str
    """The scheduler's own word: PENDING, RUNNING, NODE_FAIL, ..."""
    phase: Phase
    reason: str
    """In words: why it waits, or why it ended."""
    nodes: tuple[str, ...] = ()
    exit_code: int | None = None
    """Of the job's script; None while it runs and where nobody knows."""
    source: Literal["squeue", "sacct", "job directory", "process", "nothing"]
    """Who said so."""


class Launcher(Protocol):
    """Starts, finds and ends jobs."""

    def submit(self, job: Job) -> JobHandle:
        """Start a job whose directory is written; raises SchedulerError or MissingToolError where that is refused."""
        ...

    def state(self, handle: JobHandle) -> SchedulerState:
        """Where the job is now; a scheduler that cannot be asked gives `unknown` with the reason, never a failure."""
        ...

    def cancel(self, handle: JobHandle) -> None:
        """Ask the job to end, in order first; raises SchedulerError where that is refused."""
        ...
