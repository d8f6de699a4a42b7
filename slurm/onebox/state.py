"""The cluster's private directory: where it is, who may change it now, what it was built from."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from slurm.onebox.errors import ClusterError, UsageError
from slurm.onebox.interruption import Interruption
from slurm.onebox.layout import Cluster, Options, lay_out
from slurm.onebox.terminal import say

SCHEMA = "hpcserve.onebox/1"
PROBE = ".probe-"
"""What folders are called, before the pid, in which a command tries out what the machine can do."""
_RECORD = "cluster.json"


def root() -> Path:
    """The folder that holds all of this user's clusters."""
    chosen = os.environ.get("HPCSERVE_CLUSTER_DIR")
    if chosen:
        return Path(chosen).absolute()
    return Path(f"/var/tmp/hpcserve-cluster-{os.getuid()}")  # noqa: S108  (`make_root` checks whose it is)


def make_root() -> Path:
    """The same folder, made if need be.

    Raises UsageError where someone else could change what is in it.
    """
    folder = root()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise UsageError(
            f"{folder} is not a folder that only you can write to; set HPCSERVE_CLUSTER_DIR to one that is"
        )
    return folder


@contextmanager
def locked(name: str, interruption: Interruption) -> Iterator[None]:
    """Hold the cluster's lock; waits, and says so, while another command changes it."""
    path = make_root() / f"{name}.lock"
    told = False
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and path.stat().st_ino == os.fstat(descriptor).st_ino:
                break
        except BlockingIOError:
            if not told:
                say(f"{name}: waiting for another command that is changing it")
                told = True
        os.close(descriptor)
        interruption.sleep(0.1)
    try:
        yield
    finally:
        if not (root() / name).exists():
            path.unlink()
        os.close(descriptor)
        _clear_probes(root())
        _remove_if_empty(root())


def _clear_probes(folder: Path) -> None:
    """Remove what commands that were killed left of trying out."""
    for probe in folder.glob(f"{PROBE}*"):
        if not Path("/proc", probe.name.removeprefix(PROBE).partition("-")[0]).exists():
            shutil.rmtree(probe, ignore_errors=True)


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the directory says about itself: the cluster, and whether its start came to its end."""

    cluster: Cluster
    complete: bool


def write(record: Record) -> None:
    """Write the record, whole or not at all."""
    cluster = record.cluster
    content = {
        "schema": SCHEMA,
        "name": cluster.name,
        "complete": record.complete,
        "options": asdict(cluster.options),
    }
    draft = cluster.directory / f"{_RECORD}.{os.getpid()}"
    draft.write_text(json.dumps(content, indent=2) + "\n")
    draft.rename(cluster.directory / _RECORD)


def _decode(text: str, name: str, directory: Path) -> Record:
    content = json.loads(text)
    if content["schema"] != SCHEMA:
        raise ValueError(f"its schema is {content['schema']!r}; wanted {SCHEMA!r}")
    cluster = lay_out(name, directory, Options(**content["options"]))
    return Record(cluster=cluster, complete=content["complete"])


def read(name: str) -> Record | None:
    """The record of the cluster of that name; None where there is no such cluster.

    Raises ClusterError for a directory that is not a cluster's: it is then left alone.
    """
    directory = root() / name
    path = directory / _RECORD
    if not directory.exists():
        return None
    if not path.exists() and not any(directory.iterdir()):
        return None  # a start that ended before its first word
    try:
        return _decode(path.read_text(), name, directory)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ClusterError(
            f"{directory} is not a cluster's directory ({error}); it is left alone: move it away"
        ) from error


def records() -> list[Record]:
    """The records of all of this user's clusters that have one."""
    found = (read(path.parent.name) for path in root().glob(f"*/{_RECORD}"))
    return [record for record in found if record is not None]


def clear(cluster: Cluster, *, keep_logs: bool) -> None:
    """Delete the cluster's files, its record last, so that what a crash leaves is still known as its."""
    kept = {_RECORD, "log"} if keep_logs else {_RECORD}
    for entry in cluster.directory.iterdir():
        if entry.name in kept:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    if keep_logs:
        write(Record(cluster=cluster, complete=False))
    else:
        shutil.rmtree(cluster.directory)
