"""One router per job: the first to create the leader file leads; another learns whose it is."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from hpcserve.discovery.files import DISK, FileSystem
from hpcserve.discovery.process import is_running
from hpcserve.discovery.records import read_record, write_record
from hpcserve.errors import ServiceError
from hpcserve.nouns import Noun
from hpcserve.wire import UnreadableRecordError, encode_record

__all__ = ["Leader", "claim_leadership"]

_TORN_S = 2.0


class Leader(Noun):
    """Who leads: enough to tell it from a process of another host that happens to have the same pid."""

    schema_: Annotated[Literal["hpcserve.leader/1"], Field(alias="schema")] = "hpcserve.leader/1"
    node: str
    pid: Annotated[int, Field(gt=0)]
    start_ticks: Annotated[int, Field(ge=0)]
    """From `start_ticks(pid)`."""
    job: str
    """Slurm job id, or what stands for it with the local launcher."""


def claim_leadership(
    path: Path,
    identity: Leader,
    *,
    files: FileSystem = DISK,
    running: Callable[[int, int], bool] = is_running,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Make `identity` the leader, or raise ServiceError that names the one there is.

    Rests on O_EXCL alone, never on flock, which succeeds on two nodes at once where it is mounted `localflock`. A
    leader on the same node whose process has ended is replaced: that is a restart. One on another node is not: from
    here nobody can see whether it lives. A file that stays empty is of one that was killed while it wrote it.
    """
    try:
        files.create(path, encode_record(identity))
    except FileExistsError:
        pass
    else:
        files.sync(path.parent)
        return
    if _is_torn(path, files, sleep):
        files.unlink(path)
        claim_leadership(path, identity, files=files, running=running, sleep=sleep)
        return
    try:
        owner = read_record(path, Leader, files=files)
    except UnreadableRecordError as error:
        raise ServiceError(
            f"{path} exists and {error}",
            remedy="another process may be claiming leadership right now; if none is, remove that file",
        ) from None
    if owner.node == identity.node and not running(owner.pid, owner.start_ticks):
        write_record(path, identity, files=files)
        return
    if owner != identity:
        raise ServiceError(
            f"{os.fspath(path.name)}: job {owner.job} already has a leader on {owner.node}, pid {owner.pid}",
            remedy=f"end that one first, or remove {path} if node {owner.node} is gone",
        )


def _is_torn(path: Path, files: FileSystem, sleep: Callable[[float], None]) -> bool:
    """Whether the file is empty and stays so: between its creation and its content lie microseconds."""
    for pause_s in (_TORN_S, 0.0):
        try:
            if files.read(path).data:
                return False
        except OSError:
            return False  # what is wrong with it is said by whoever reads it next
        sleep(pause_s)
    return True
