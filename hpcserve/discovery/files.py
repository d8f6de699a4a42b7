"""The few file system calls that discovery makes, behind one seam, so that a test can make each of them fail."""

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["DISK", "FileSystem", "Found"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The bytes of one file, who owns it and its permission bits, all from one open file."""

    data: bytes
    uid: int
    mode: int


class FileSystem(Protocol):
    """What discovery asks of a file system. Every call may raise OSError."""

    def names(self, directory: Path) -> list[str]:
        """Names in a directory, in any order."""

    def read(self, path: Path) -> Found:
        """Open, then look, then read: the open is what makes NFS ask its server (close-to-open)."""

    def create(self, path: Path, data: bytes) -> None:
        """Write a file that must not exist yet, mode 0600, and bring it to stable storage."""

    def replace(self, source: Path, target: Path) -> None:
        """Rename over whatever `target` is."""

    def sync(self, directory: Path) -> None:
        """Bring a directory's entries to stable storage."""

    def unlink(self, path: Path) -> None:
        """Remove a file or symbolic link."""

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""


class _Disk:
    """The real one."""

    def names(self, directory: Path) -> list[str]:
        return [path.name for path in directory.iterdir()]

    def read(self, path: Path) -> Found:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            return Found(data=file.read(), uid=status.st_uid, mode=status.st_mode)

    def create(self, path: Path, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def sync(self, directory: Path) -> None:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # fsync(2): EINVAL says that this file system cannot sync a directory; it then orders renames itself.
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def rmdir(self, path: Path) -> None:
        path.rmdir()


DISK: FileSystem = _Disk()
"""The file system of this host."""
