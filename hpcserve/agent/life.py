"""Which life of a job this is: Slurm may start a job again under its old id; all that an earlier life left is void."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from hpcserve.discovery import read_dir_record
from hpcserve.nouns import JobFailure, Noun
from hpcserve.wire import UnreadableRecordError

__all__ = [
    "DECIDED",
    "FAILED",
    "Decided",
    "failure_in",
    "fresh_generation",
    "is_decided",
    "is_of",
    "is_told_to_stop",
    "life_of",
]

FAILED = "failed.json"
DECIDED = "decided.json"
STOP = "stop.json"


class Decided(Noun):
    """`decided.json`: written by the head node last of all: plan and launch scripts of this life are complete."""

    schema_: Annotated[Literal["hpcserve.decided/1"], Field(alias="schema")] = "hpcserve.decided/1"
    life: str


class Stop(Noun):
    """`stop.json`: the job's script tells all agents to end; a signal to their step would reach the workers as well."""

    schema_: Annotated[Literal["hpcserve.stop/1"], Field(alias="schema")] = "hpcserve.stop/1"
    life: str


def life_of(environment: Mapping[str, str]) -> str:
    """Slurm's job id and restart count, `4242.1`; `local.0` without Slurm. Equal on all nodes, new after a requeue."""
    return f"{environment.get('SLURM_JOB_ID') or 'local'}.{environment.get('SLURM_RESTART_COUNT') or 0}"


def fresh_generation(life: str) -> str:
    """A generation that no other start of anything has had."""
    return f"{life}-{secrets.token_hex(6)}"


def is_of(life: str, generation: str) -> bool:
    """Whether a generation was made in this life."""
    return generation.rpartition("-")[0] == life


def failure_in(job_directory: Path, life: str) -> JobFailure | None:
    """Why this life of the job gave up; None while it did not. Raises OSError."""
    try:
        failure = read_dir_record(job_directory, FAILED, JobFailure)
    except UnreadableRecordError:
        return None  # it is looked at again
    return failure if failure is not None and failure.life == life else None


def is_told_to_stop(job_directory: Path, life: str) -> bool:
    """Whether this life of the job is to end. Raises OSError."""
    try:
        stop = read_dir_record(job_directory, STOP, Stop)
    except UnreadableRecordError:
        return False  # it is looked at again
    return stop is not None and stop.life == life


def is_decided(job_directory: Path, life: str) -> bool:
    """Whether the head node has placed the workers of this life. Raises OSError."""
    try:
        decided = read_dir_record(job_directory, DECIDED, Decided)
    except UnreadableRecordError:
        return False  # it is looked at again
    return decided is not None and decided.life == life
