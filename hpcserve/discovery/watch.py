"""Which endpoints live, by polling: listings, records, and heartbeats judged on the reader's own clock."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hpcserve.discovery.files import DISK, FileSystem
from hpcserve.discovery.presence import ENDPOINTS, HEARTBEATS
from hpcserve.discovery.records import Listing, read_records
from hpcserve.discovery.troubles import Troubles
from hpcserve.nouns import Endpoint, Heartbeat, Noun

__all__ = ["HEARTBEAT_TIMEOUT_S", "Snapshot", "Watch"]

N = TypeVar("N", bound=Noun)

HEARTBEAT_TIMEOUT_S = 60.0
"""nfs(5): `acdirmax`, `acregmax` default to 60 s, so a change may stay unseen that long though its writer lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The endpoints that live now, by id, and what is worth one line in a log since the last look."""

    endpoints: tuple[Endpoint, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pulse:
    """A node's last heartbeat and when, on the reader's clock, it was seen to change."""

    mark: tuple[str, int] | None
    changed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """An endpoint's last good record and when it was read."""

    endpoint: Endpoint
    read_s: float


class Watch:
    """Follows the endpoints of one job directory. Not for two threads at once."""

    def __init__(
        self,
        job_directory: Path,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        timeout_s: float = HEARTBEAT_TIMEOUT_S,
        unix_time: Callable[[], float] = time.time,
        files: FileSystem = DISK,
        uid: int | None = None,
    ) -> None:
        """`uid`: whose records are believed (None: the reader's own). ValueError for a time-out under 60 s."""
        if timeout_s < HEARTBEAT_TIMEOUT_S:
            raise ValueError(f"a time-out of {timeout_s} s; at least {HEARTBEAT_TIMEOUT_S} s is wanted (NFS caches)")
        self._job_directory = job_directory
        self._monotonic = monotonic
        self._timeout_s = timeout_s
        self._unix_time = unix_time
        self._files = files
        self._uid = os.geteuid() if uid is None else uid
        self._pulses: dict[str, _Pulse] = {}
        self._kept: dict[str, _Kept] = {}
        self._troubles = Troubles()

    def poll(self) -> Snapshot:
        """Look once. Never raises for what stands on disk: what cannot be read is warned of once, the rest counts."""
        now_s = self._monotonic()
        self._troubles.begin(now_s)
        self._read_heartbeats(now_s)
        self._read_endpoints(now_s)
        alive = [
            kept.endpoint
            for _, kept in sorted(self._kept.items())
            if self._beats(kept.endpoint.node, now_s) and now_s - kept.read_s <= self._timeout_s
        ]
        return Snapshot(endpoints=tuple(alive), warnings=self._troubles.end())

    def _read_heartbeats(self, now_s: float) -> None:
        listing = self._list(HEARTBEATS, Heartbeat)
        if listing is None:
            return
        for name, beat in listing.records.items():
            mark = (beat.generation, beat.count)
            before = self._pulses.get(name)
            if before is not None and before.mark == mark:
                self._troubles.persist(f"clock of {name}")
                continue
            self._pulses[name] = _Pulse(mark=mark, changed_s=now_s)
            if before is not None:  # a first look says nothing: the record may be old
                self._judge_clock(name, beat.written_unix_s - self._unix_time())

    def _judge_clock(self, node: str, ahead_s: float) -> None:
        if abs(ahead_s) > self._timeout_s / 2:
            side = "ahead of" if ahead_s > 0 else "behind"
            self._troubles.report(
                f"clock of {node}",
                f"{node}: its clock is about {abs(ahead_s):.0f} s {side} this node's (or its files come that late); "
                "liveness does not depend on it, but logs will not line up: check chrony/ntp there",
            )

    def _read_endpoints(self, now_s: float) -> None:
        listing = self._list(ENDPOINTS, Endpoint)
        if listing is None:
            return
        for name, endpoint in listing.records.items():
            if endpoint.id != name:
                self._troubles.report(
                    f"{ENDPOINTS}/{name}", f"{ENDPOINTS}/{name}.json: is about {endpoint.id}; skipped"
                )
                continue
            self._kept[name] = _Kept(endpoint=endpoint, read_s=now_s)
            self._pulses.setdefault(endpoint.node, _Pulse(mark=None, changed_s=now_s))
        for name in self._kept.keys() - listing.records.keys() - listing.unreadable.keys():
            del self._kept[name]

    def _list(self, folder: str, kind: type[N]) -> Listing[N] | None:
        """The folder's records; None where the folder itself cannot be listed now, so that all stays as it was."""
        try:
            listing = read_records(self._job_directory, folder, kind, files=self._files, uid=self._uid)
        except OSError as error:
            reason = os.strerror(error.errno or 0)
            self._troubles.report(folder, f"{folder}: cannot be listed: {reason}; kept as it was")
            return None
        for name, reason in listing.unreadable.items():
            self._troubles.report(f"{folder}/{name}", f"{folder}/{name}.json: {reason}; skipped")
        return listing

    def _beats(self, node: str, now_s: float) -> bool:
        still_s = now_s - self._pulses[node].changed_s
        if still_s <= self._timeout_s:
            return True
        self._troubles.report(
            f"heartbeat of {node}",
            f"{node}: its heartbeat has stood still for more than {self._timeout_s:.0f} s; its workers are left out",
        )
        return False
