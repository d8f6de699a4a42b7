"""`exit.json`: how a job's script ended, in its own word, for when no scheduler remembers it."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from hpcserve.discovery import read_dir_record
from hpcserve.nouns import Noun
from hpcserve.scheduler.launcher import SchedulerState
from hpcserve.wire import UnreadableRecordError

__all__ = ["ExitRecord", "state_from_directory"]


class ExitRecord(Noun):
    """What `job.sbatch` and `local.sh` write last."""

    schema_: Annotated[Literal["hpcserve.exit/1"], Field(alias="schema")]
    code: int


def state_from_directory(directory: Path) -> SchedulerState | None:
    """What the job itself said of its end; None where it said nothing."""
    try:
        record = read_dir_record(directory, "exit.json", ExitRecord)
    except (OSError, UnreadableRecordError):
        return None  # a job whose directory is gone or torn is one that said nothing
    if record is None:
        return None
    if record.code == 0:
        return SchedulerState(word="COMPLETED", phase="ended", reason="", exit_code=0, source="job directory")
    return SchedulerState(
        word="FAILED",
        phase="failed",
        reason=f"its script ended with {record.code}",
        exit_code=record.code,
        source="job directory",
    )
