"""`Job`: the files of a job directory and the command that submits it. Same inputs, same bytes."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Noun, Text

__all__ = ["Job", "JobFailure", "JobFile", "JobHandle", "JobPhase", "JobState", "NodeRefusal", "WorkerState"]


class JobFile(Noun):
    """One file of the job directory: its path relative to it, its text, its permission bits."""

    path: Text
    text: str
    mode: Annotated[int, Field(ge=0, le=0o777)] = 0o600


class Job(Noun):
    """What will be submitted; printable. `directives` are the `#SBATCH` options of the script, in order."""

    schema_: Annotated[Literal["hpcserve.rendered/1"], Field(alias="schema")] = "hpcserve.rendered/1"
    name: Text
    directory: Text
    """Absolute path of the job directory."""
    files: Annotated[tuple[JobFile, ...], Field(min_length=1)]
    directives: tuple[Text, ...]
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    """The submitting command."""

    def file(self, path: str) -> JobFile:
        """The file of that relative path; KeyError where there is none."""
        for file in self.files:
            if file.path == path:
                return file
        raise KeyError(path)


class JobHandle(Noun):
    """A submitted job; kept as `job.json` in the job directory."""

    schema_: Annotated[Literal["hpcserve.job/1"], Field(alias="schema")] = "hpcserve.job/1"
    name: Text
    launcher: Literal["slurm", "local"]
    id: Text
    """Slurm job id, or `local-PID` of the local launcher's leader."""
    directory: Text
    submitted_utc: Text


class JobFailure(Noun):
    """`failed.json`: why the job as a whole gave up."""

    schema_: Annotated[Literal["hpcserve.failed/1"], Field(alias="schema")] = "hpcserve.failed/1"
    reason: str
    where: Text
    life: Text
    """Which start of the job: Slurm's job id and restart count, `4242.1`; `local.0` without Slurm."""


class NodeRefusal(Noun):
    """`refused/NODE.json`: why a granted node is unfit to serve; the job goes on without it where it has spares."""

    schema_: Annotated[Literal["hpcserve.refused/1"], Field(alias="schema")] = "hpcserve.refused/1"
    node: Text
    life: Text
    reasons: Annotated[tuple[str, ...], Field(min_length=1)]


class JobPhase(StrEnum):
    """Where a job is, from the user's side."""

    PENDING = "pending"
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    """Serving, but a worker or pair is missing."""
    ENDED = "ended"
    FAILED = "failed"
    UNKNOWN = "unknown"


class WorkerState(Noun):
    """What status shows of one worker."""

    id: Text
    role: Text
    node: Text
    phase: Literal["waiting", "starting", "proving", "ready", "draining", "restarting", "failed", "stopped"]
    restarts: Annotated[int, Field(ge=0)] = 0
    detail: str = ""
    log_tail: tuple[str, ...] = ()
    """Last lines of its log, only where it failed."""


class JobState(Noun):
    """What `hpcserve status` prints."""

    schema_: Annotated[Literal["hpcserve.status/1"], Field(alias="schema")] = "hpcserve.status/1"
    handle: JobHandle
    phase: JobPhase
    scheduler_state: str
    """Slurm's own word, e.g. PENDING."""
    reason: str
    """Slurm's reason while pending, ours when failed."""
    url: str | None
    workers: tuple[WorkerState, ...] = ()
    refused: tuple[NodeRefusal, ...] = ()
    """Granted nodes that proved unfit, and why; the job goes on without them where it has spares."""
    kv_doubts: tuple[str, ...] = ()
    """What is in the way of the KV events that the service wants, one sentence each."""
    simulated: bool = False
