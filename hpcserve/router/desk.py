"""What all requests of one router share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from hpcserve.router.arrivals import Arrivals
from hpcserve.router.log import Log
from hpcserve.router.metrics import Metrics
from hpcserve.router.pool import Leg, Pools
from hpcserve.router.roster import Roster

__all__ = ["Desk", "Limits", "Timed"]


class Timed(Protocol):
    """What is looked at several times a second for having taken too long."""

    def check_time(self, now_s: float) -> None:
        """Act if a limit has passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much and how long."""

    header_bytes: int = 64 << 10
    body_bytes: int = 64 << 20
    """Images come inside JSON as data: URLs."""
    drain_bytes: int = 1 << 20
    """A refused request's body is read to its end up to this length; beyond it the connection is closed."""
    answer_bytes: int = 64 << 20
    head_s: float = 30.0
    body_idle_s: float = 60.0
    connection_idle_s: float = 75.0
    pipelined: int = 8
    handoff_s: float | None = None
    """Longest wait for the first token after the prefill's answer; None: no limit."""


@dataclass(slots=True, kw_only=True)
class Desk:
    """The parts that sessions and exchanges use; `now_s` is the loop's clock."""

    roster: Roster
    pools: Pools
    metrics: Metrics
    log: Log
    limits: Limits
    now_s: Callable[[], float]
    key_digest: bytes
    """SHA-256 of the job's API key."""
    engine_key: bytes
    """For the engines; empty where they ask for none."""
    arrivals: Arrivals
    timed: set[Timed] = field(default_factory=set)
    draining: bool = False
    count: int = 0
    """Requests so far: their ids and whose turn it is come from it."""
    id_prefix: str = "hpc-"

    def next_id(self) -> str:
        """A request id of our own."""
        self.count += 1
        return f"{self.id_prefix}{self.count}"

    def send(self, leg: Leg) -> None:
        """Send a leg on its worker's pool."""
        self.pools.of(leg.endpoint).send(leg)
