"""Job directories: the next free number, and one made whole or not at all."""

import errno
import os
import re
import secrets
from pathlib import Path

from hpcserve.discovery import DISK, remove_tree
from hpcserve.errors import HpcserveError, refused
from hpcserve.nouns import Job

__all__ = ["make_job_directory", "next_number"]

_EMPTY_FOLDERS = ("nodes", "workers", "endpoints", "heartbeats", "logs")
_TAKEN = {errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR}


def next_number(root: Path, service: str) -> int:
    """One more than the highest number of this service's jobs under `root`; refuses a root that no script can name."""
    text = str(root)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise HpcserveError(f"job directory {text!r} is not valid UTF-8", remedy="choose another --jobs-dir") from None
    if not text.isprintable():
        raise HpcserveError(
            f"job directory {text!r} contains a line end or control character", remedy="choose another --jobs-dir"
        )
    taken = re.compile(rf"{re.escape(service)}-(\d+)")
    names = [entry.name for entry in root.iterdir()] if root.is_dir() else []
    numbers = [int(match[1]) for name in names if (match := taken.fullmatch(name))]
    return max(numbers, default=0) + 1


def make_job_directory(job: Job) -> bool:
    """Write the job's files; False where another job has taken the name meanwhile.

    Everything is written beside the target under a name of its own, synced, then renamed: a reader sees all of it or
    nothing. Raises HpcserveError where the file system refuses; nothing stays then.
    """
    target = Path(job.directory)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(8)}")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.mkdir(mode=0o700)
        _fill(temporary, job)
        temporary.rename(target)
        DISK.sync(target.parent)
    except OSError as error:
        remove_tree(temporary)
        if error.errno in _TAKEN and target.exists():
            return False
        raise refused(error, f"job directory {target} cannot be written", remedy="choose another --jobs-dir") from None
    except BaseException:
        remove_tree(temporary)
        raise
    return True


def _fill(folder: Path, job: Job) -> None:
    for name in _EMPTY_FOLDERS:
        (folder / name).mkdir(mode=0o700)
    for file in job.files:
        path = folder / file.path
        path.parent.mkdir(mode=0o700, exist_ok=True)
        DISK.create(path, file.text.encode())
        path.chmod(file.mode)
    for name in {file.path.rpartition("/")[0] for file in job.files} | {"."}:
        DISK.sync(folder / name)
