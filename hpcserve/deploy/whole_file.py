"""Files that a person asked for: written whole or not at all, so that a full disk never costs what was there before."""

import contextlib
import errno
import os
import secrets
from pathlib import Path

from hpcserve.discovery import DISK
from hpcserve.errors import HpcserveError, MissingToolError, refused

__all__ = ["check_place", "write_whole"]


def check_place(path: Path, *, remedy: str) -> None:
    """Raise HpcserveError where `path` cannot be written for a reason that shows before: asked before long work.

    It is a MissingToolError where a permission is missing.
    """
    if path.is_dir():
        raise HpcserveError(f"{path} is a folder", remedy=remedy)
    if _is_special(path):
        return
    folder = Path(os.path.realpath(path)).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise HpcserveError(f"{folder} is no folder", remedy=remedy)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MissingToolError(f"{folder} cannot be written to by you", remedy=remedy)


def write_whole(path: Path, data: bytes, *, remedy: str) -> None:
    """Write `data` beside `path` and put it in its place; raises HpcserveError, and `path` is then as it was.

    What is no regular file (`/dev/stdout`, a pipe) is written to directly. Of a link the file that it leads to is
    replaced. A file keeps its mode, a new one has that of any that this process makes.
    """
    try:
        if _is_special(path):
            path.write_bytes(data)
            return
        target = Path(os.path.realpath(path))
        temporary = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(8)}")
        try:
            mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_mask()
            DISK.create(temporary, data)
            temporary.chmod(mode)
            DISK.replace(temporary, target)
            DISK.sync(target.parent)
        except BaseException:  # Ctrl-C too
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        where = path.parent if error.errno == errno.ENOENT else path
        raise refused(error, f"{where} cannot be written", remedy=remedy) from None


def _is_special(path: Path) -> bool:
    """Whether it is a device, a pipe or a socket, or leads to one."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _mask() -> int:
    """The umask, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
