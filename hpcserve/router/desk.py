"""What all requests of one router share."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from hpcserve.router.access_log import AccessLog
from hpcserve.router.arrivals import Arrivals
from hpcserve.router.decisions import KEPT_DECISIONS, Decision
from hpcserve.router.exposition import Series
from hpcserve.router.keys import KeyRing
from hpcserve.router.kv_knowledge import KvKnowledge
from hpcserve.router.log import Log
from hpcserve.router.metrics import Metrics
from hpcserve.router.pool import Pools
from hpcserve.router.roster import Roster
from hpcserve.router.slots import LinkSlots
from hpcserve.router.turns import Turns
from hpcserve.routing import Preferences

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
    body_s: float = 600.0
    """A whole body, so that one that drips holds nothing for ever."""
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
    keys: KeyRing
    """Clients' keys; another ring takes its place when the files change."""
    engine_key: bytes
    """For the engines; empty where they ask for none."""
    arrivals: Arrivals
    preferences: Preferences = field(default_factory=Preferences)
    """What the user set about choosing."""
    slots: LinkSlots | None = None
    """Places on the decode workers' links; None: pulls are not put in turn."""
    further_series: list[Callable[[], Iterable[Series]]] = field(default_factory=list)
    """What others want shown in `/metrics`."""
    kv: KvKnowledge | None = None
    """Who holds a prompt's KV; None: nothing is known of it."""
    access: AccessLog | None = None
    """None: not asked for."""
    decisions: deque[Decision] = field(default_factory=lambda: deque(maxlen=KEPT_DECISIONS))
    """The last choices, newest last."""
    timed: set[Timed] = field(default_factory=set)
    turns: Turns = field(default_factory=Turns)
    """Whether the event loop stood still."""
    draining: bool = False
    count: int = 0
    """Requests so far: their ids and whose turn it is come from it."""
    id_prefix: str = "hpc-"

    def next_id(self) -> str:
        """A request id of our own."""
        self.count += 1
        return f"{self.id_prefix}{self.count}"
