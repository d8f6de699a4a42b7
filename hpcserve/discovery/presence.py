"""What a node says of itself: its workers' endpoints, on events; its heartbeat, all the time."""

import errno
import time
from collections.abc import Callable
from pathlib import Path

from hpcserve.discovery.files import DISK, FileSystem
from hpcserve.discovery.records import SUFFIX, write_record
from hpcserve.nouns import Endpoint, Heartbeat

__all__ = ["ENDPOINTS", "HEARTBEATS", "HEARTBEAT_PERIOD_S", "Heart", "announce", "withdraw"]

ENDPOINTS = "endpoints"
HEARTBEATS = "heartbeats"

HEARTBEAT_PERIOD_S = 5.0
"""One small write per node: a thousand nodes are 200 renames/s, which one metadata server bears; not more often."""


def announce(job_directory: Path, endpoint: Endpoint, *, files: FileSystem = DISK) -> None:
    """Publish a worker that is ready, or that now drains. Raises OSError."""
    write_record(job_directory / ENDPOINTS / f"{endpoint.id}{SUFFIX}", endpoint, files=files)


def withdraw(job_directory: Path, worker_id: str, *, files: FileSystem = DISK) -> None:
    """Take a worker's endpoint back; nothing happens where it has none. Raises OSError."""
    try:
        files.unlink(job_directory / ENDPOINTS / f"{worker_id}{SUFFIX}")
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ESTALE}:
            raise


class Heart:
    """Writes one node's heartbeat; whoever owns it calls `beat` every `period_s` seconds."""

    def __init__(
        self,
        job_directory: Path,
        *,
        node: str,
        generation: str,
        period_s: float = HEARTBEAT_PERIOD_S,
        unix_time: Callable[[], float] = time.time,
        files: FileSystem = DISK,
    ) -> None:
        """ValueError for a period under 5 s: that is load on the metadata server which finds no death sooner."""
        if period_s < HEARTBEAT_PERIOD_S:
            raise ValueError(f"a heartbeat every {period_s} s; at least {HEARTBEAT_PERIOD_S} s is wanted")
        self.period_s = period_s
        self._path = job_directory / HEARTBEATS / f"{node}{SUFFIX}"
        self._node = node
        self._generation = generation
        self._unix_time = unix_time
        self._files = files
        self._count = 0

    def beat(self) -> None:
        """Write the next count. Raises OSError; the count is then not used up twice by a later beat."""
        self._count += 1
        write_record(
            self._path,
            Heartbeat(
                node=self._node,
                generation=self._generation,
                count=self._count,
                written_unix_s=self._unix_time(),
            ),
            files=self._files,
        )
