"""What all programs of one node's agent share."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

from hpcserve.agent.pace import Pace
from hpcserve.agent.ports import Ports
from hpcserve.discovery import write_record
from hpcserve.engines import Adapter
from hpcserve.nouns import GrantedNode, Service, WorkerState

__all__ = ["LOG", "Station"]

LOG = logging.getLogger("hpcserve.agent")


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
