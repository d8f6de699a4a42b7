"""One noun a file: written whole or not at all, read by listing."""

import contextlib
import errno
import os
import secrets
import socket
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from hpcserve.discovery.files import DISK, FileSystem
from hpcserve.nouns import Noun
from hpcserve.wire import UnreadableRecordError, decode_record, encode_record

__all__ = ["SUFFIX", "Listing", "read_dir_record", "read_record", "read_records", "write_record"]

N = TypeVar("N", bound=Noun)

SUFFIX = ".json"


def write_record(path: Path, noun: Noun, *, files: FileSystem = DISK) -> None:
    """Put `noun` at `path` so that a reader on any node sees the old record or the new one, never a part of it.

    The temporary name carries host, pid and a random part: two hosts may run the same pid. A rename that does not find
    its source (seen on FUSE and NFS when a retransmitted rename already happened) is done again, from the write, once.
    Raises OSError; nothing half-written stays under either name.
    """
    data = encode_record(noun)
    try:
        _place(path, data, files)
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.EEXIST}:
            raise
        _place(path, data, files)


def _place(path: Path, data: bytes, files: FileSystem) -> None:
    temporary = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(8)}")
    files.create(temporary, data)
    try:
        files.replace(temporary, path)
    except BaseException:  # Ctrl-C too
        with contextlib.suppress(OSError):
            files.unlink(temporary)
        raise
    files.sync(path.parent)


def read_record(path: Path, kind: type[N], *, files: FileSystem = DISK, uid: int | None = None) -> N:
    """The noun at `path`, which a listing has just shown; `uid` is whose records are believed (None: the caller's own).

    Raises UnreadableRecordError: cannot be opened, is not the noun, or could have been written by somebody else.
    """
    try:
        found = files.read(path)
    except OSError as error:
        raise UnreadableRecordError(f"cannot be read: {os.strerror(error.errno or 0)}") from None
    if found.uid != (os.geteuid() if uid is None else uid):
        raise UnreadableRecordError(f"belongs to user id {found.uid}, not to the owner of this job")
    if found.mode & stat.S_IWOTH:
        raise UnreadableRecordError("may be written by anybody (world-writable)")
    return decode_record(kind, found.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[N]):
    """One look at a directory of records, by name without `.json`: what could be read, and why the rest could not."""

    records: dict[str, N]
    unreadable: dict[str, str]


def read_records(
    job_directory: Path, folder: str, kind: type[N], *, files: FileSystem = DISK, uid: int | None = None
) -> Listing[N]:
    """All records of `job_directory/folder`; none where there is no such folder yet.

    Lists, and never asks for a name that may not exist: on NFS such a question is remembered as "no" for up to a
    minute (negative directory entry). Raises OSError where the listing itself fails.
    """
    records: dict[str, N] = {}
    unreadable: dict[str, str] = {}
    for name in _names(job_directory / folder, job_directory, files):
        try:
            records[name] = read_record(job_directory / folder / f"{name}{SUFFIX}", kind, files=files, uid=uid)
        except UnreadableRecordError as error:
            unreadable[name] = str(error)
    return Listing(records=records, unreadable=unreadable)


def read_dir_record(directory: Path, name: str, kind: type[N], *, files: FileSystem = DISK) -> N | None:
    """The record `name` (with `.json`) of `directory`, None while a listing does not show it.

    Raises UnreadableRecordError for one that is shown and cannot be read, OSError where the listing fails.
    """
    if name not in files.names(directory):
        return None
    return read_record(directory / name, kind, files=files)


def _names(folder: Path, job_directory: Path, files: FileSystem) -> list[str]:
    if folder.name not in files.names(job_directory):
        return []
    return sorted(
        name.removesuffix(SUFFIX) for name in files.names(folder) if name.endswith(SUFFIX) and not name.startswith(".")
    )
