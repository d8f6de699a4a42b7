"""What all programs of one node's agent share."""

import logging
import os
from dataclasses import dataclass, field
from pathlib import Path

from hpcserve.agent.pace import Pace
from hpcserve.agent.ports import Ports
from hpcserve.discovery import write_record
from hpcserve.engines import Adapter
from hpcserve.nouns import GrantedNode, Service, WorkerState

__all__ = ["Station", "log_tail"]

LOG = logging.getLogger("hpcserve.agent")

_TAIL_LINES = 20
_TAIL_BYTES = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """One node's place in a job: where it writes, what it is, how its engines are spoken to, how patient it is."""

    job_directory: Path
    life: str
    node: GrantedNode
    service: Service
    adapter: Adapter
    engine_key: str = field(repr=False)
    ports: Ports
    pace: Pace

    def pid_path(self, name: str) -> Path:
        """Where the pid of a worker or the router is kept."""
        return self.job_directory / "workers" / f"{name}.pid"

    def log_path(self, name: str) -> Path:
        """Where a worker or the router writes what it has to say."""
        return self.job_directory / "logs" / f"{name}.log"

    def record_state(self, state: WorkerState) -> None:
        """Write what `hpcserve status` shows of a worker; a full disk must not end the worker."""
        try:
            write_record(self.job_directory / "workers" / f"{state.id}.state.json", state)
        except OSError as error:
            LOG.warning("%s: its state could not be written: %s", state.id, error)


def log_tail(path: Path, *, from_bytes: int = 0) -> tuple[str, ...]:
    """The last lines of a log behind `from_bytes`, without control characters; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(from_bytes, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    lines = ("".join(mark for mark in line if mark.isprintable() or mark == "\t") for line in text.splitlines())
    return tuple(line for line in lines if line.strip())[-_TAIL_LINES:]
