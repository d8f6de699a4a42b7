"""Removing a directory that some process may still have open."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from hpcserve.discovery.files import DISK, FileSystem

__all__ = ["remove_tree"]

_ATTEMPTS = 3
_PAUSE_S = 0.5


def remove_tree(
    path: Path, *, files: FileSystem = DISK, attempts: int = _ATTEMPTS, sleep: Callable[[float], None] = time.sleep
) -> tuple[str, ...]:
    """Remove `path` and all below it; returns one line for each thing that would not go, nothing where all went.

    An NFS client keeps a file that a process still has open as `.nfsXXXX` (EBUSY), and its directory with it
    (ENOTEMPTY). That is tried `attempts` times and then left: it goes when the process ends, and is no failure.
    Symbolic links are removed, never followed. Raises nothing for what the file system says.
    """
    left: list[str] = []
    for attempt in range(attempts):
        if attempt:
            sleep(_PAUSE_S)
        left = []
        _remove(path, files, left)
        if not left:
            break
    return tuple(left)


def _remove(path: Path, files: FileSystem, left: list[str]) -> None:
    try:
        files.unlink(path)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ESTALE}:
            return
        if error.errno not in {errno.EISDIR, errno.EPERM}:  # unlink(2): EISDIR on Linux, EPERM says POSIX
            left.append(_line(path, error))
            return
    else:
        return
    try:
        for name in files.names(path):
            _remove(path / name, files, left)
        files.rmdir(path)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ESTALE}:
            left.append(_line(path, error))


def _line(path: Path, error: OSError) -> str:
    return f"{path} stays: {os.strerror(error.errno or 0)}"
