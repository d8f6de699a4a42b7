"""What goes on beside the requests: discovery, health, proofs, time limits, the record of what was proved."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from hpcserve.discovery import write_record
from hpcserve.nouns import Endpoint, RouterState
from hpcserve.router.ask import AskError, ask
from hpcserve.router.desk import Desk
from hpcserve.router.key_file import KeyFile
from hpcserve.router.kv_setup import KvParts
from hpcserve.router.prove import Prover
from hpcserve.router.reports import Reports
from hpcserve.router.roster import Candidate
from hpcserve.router.session import Session
from hpcserve.router.stalls import Stalls

__all__ = ["Sight", "Watcher"]

_DISCOVERY_S = 1.0
_SWEEP_S = 0.25
_HEALTH_S = 2.0
_HEALTH_TIMEOUT_S = 10.0
_UNRESPONSIVE_S = 30.0
"""A worker that has not answered `/health` for this long is given up, with everything that it has: its engine may block
its HTTP for some seconds (a long prompt, a garbage collection), not for half a minute."""
_STALLS_S = 30.0
_REPORTS_S = 5.0
"""vLLM adds up its transfers every few seconds; more often would show nothing new."""
_OK = 200


class Sight(Protocol):
    """What discovery sees at one look."""

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Workers that are alive."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for the log."""


class Watcher:
    """The background tasks of one router."""

    def __init__(
        self,
        desk: Desk,
        *,
        look: Callable[[], Sight],
        prover: Prover,
        stalls: Stalls,
        sessions: set[Session],
        state_path: Path,
        reports: Reports | None = None,
        kv: KvParts | None = None,
        key_file: KeyFile | None = None,
    ) -> None:
        self._desk = desk
        self._look = look
        self._prover = prover
        self._stalls = stalls
        self._sessions = sessions
        self._state_path = state_path
        self._reports = reports
        self._kv = kv
        self._key_file = key_file
        self._written: RouterState | None = None
        self._told = ""
        self._ready_since_utc: str | None = None
        self._answered_s: dict[tuple[str, str], float] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._discover())
            group.create_task(self._sweep())
            group.create_task(self._prove())
            group.create_task(self._probe())
            group.create_task(self._look_for_stalls())
            group.create_task(self._try_again())
            if self._reports is not None:
                group.create_task(self._read_reports(self._reports))
            if self._kv is not None:
                group.create_task(self._kv.run())

    def see(self, sight: Sight) -> None:
        """Take in one look of discovery."""
        desk = self._desk
        for warning in sight.warnings:
            desk.log.event(f"discovery: {warning}")
        before = desk.roster.endpoints
        if desk.roster.take(sight.endpoints):
            for endpoint in before:
                if endpoint not in sight.endpoints:
                    desk.log.event(f"worker {endpoint.id} generation {endpoint.generation}: gone or changed")
                    if desk.slots is not None:
                        desk.slots.release_all(endpoint.id)
            for endpoint in sight.endpoints:
                if endpoint not in before:
                    desk.log.event(f"worker {endpoint.id} generation {endpoint.generation}: {endpoint.url}")
            desk.pools.keep_only(sight.endpoints)
            for timed in tuple(desk.timed):  # whose KV was in a worker that began anew
                timed.check_time(desk.now_s())
            if self._kv is not None:
                self._kv.follow(sight.endpoints)
            self._changed.set()

    async def _discover(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self.see(await loop.run_in_executor(None, self._look))
            await self._write_state()
            await self._look_at_keys()
            await asyncio.sleep(_DISCOVERY_S)

    async def _look_at_keys(self) -> None:
        key_file, desk = self._key_file, self._desk
        if key_file is None:
            return
        ring, words = await asyncio.get_running_loop().run_in_executor(None, key_file.changed)
        if words:
            desk.log.event(words)
        if ring is not None:
            desk.keys = ring

    async def _write_state(self) -> None:
        """Write `router.state.json` if what it says has changed."""
        roster = self._desk.roster
        if not roster.ready:
            self._ready_since_utc = None
        elif self._ready_since_utc is None:
            self._ready_since_utc = datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            self._desk.log.event("ready: every planned worker was proved")
        state = roster.state(ready_since_utc=self._ready_since_utc)
        if self._kv is not None and self._kv.doubts:
            state = state.model_copy(update={"kv_doubts": self._kv.doubts})
        if state == self._written:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(None, lambda: write_record(self._state_path, state))
        except OSError as error:
            words = f"{self._state_path.name} cannot be written: {error.strerror or error}; it is tried again"
            if words != self._told:  # once: it may last for hours, and is tried every second
                self._desk.log.event(words)
            self._told = words
        else:
            if self._told:
                self._desk.log.event(f"{self._state_path.name} can be written again")
            self._told = ""
            self._written = state

    async def _sweep(self) -> None:
        desk = self._desk
        turn = 0
        while True:
            await asyncio.sleep(_SWEEP_S)
            now_s = desk.now_s()
            desk.turns.seen(now_s)
            for timed in tuple(desk.timed):
                timed.check_time(now_s)
            turn += 1
            if turn % 4 == 0:
                for session in tuple(self._sessions):
                    session.check_time(now_s)
                desk.pools.tidy()
                desk.log.flush()
                if desk.access is not None:
                    desk.access.flush()

    async def _prove(self) -> None:
        desk = self._desk
        while True:
            candidate = next(desk.roster.candidates(desk.now_s()), None)
            if candidate is None:
                self._changed.clear()
                try:
                    async with asyncio.timeout(_DISCOVERY_S):
                        await self._changed.wait()
                except TimeoutError:
                    pass  # a pair that failed may be due again
                continue
            finding = await self._prover.prove(candidate)
            desk.log.event(f"proof {candidate.title}: {finding.outcome}: {finding.reason}")
            desk.roster.record(candidate, finding, now_s=desk.now_s())
            await self._write_state()

    async def _look_for_stalls(self) -> None:
        while True:
            await asyncio.sleep(_STALLS_S)
            await self._stalls.look()

    async def _read_reports(self, reports: Reports) -> None:
        """One worker after the other, evenly spread, so that reading never takes long at a time."""
        while True:
            endpoints = self._desk.roster.endpoints
            for endpoint in endpoints:
                await reports.look(endpoint)
                await asyncio.sleep(_REPORTS_S / len(endpoints))
            if not endpoints:
                await asyncio.sleep(_REPORTS_S)

    async def _try_again(self) -> None:
        """Send a prompt of our own to workers that answered with errors, so that no client's request is the trial."""
        trials: dict[tuple[str, str], asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                trials = {key: task for key, task in trials.items() if not task.done()}
                for endpoint in self._desk.roster.to_be_tried(self._desk.now_s()):
                    key = (endpoint.id, endpoint.generation)
                    if key not in trials:
                        trials[key] = group.create_task(self._try_one(endpoint))
                await asyncio.sleep(_DISCOVERY_S)

    async def _try_one(self, endpoint: Endpoint) -> None:
        desk = self._desk
        finding = await self._prover.prove(Candidate(prefill=None, decode=endpoint))
        if desk.roster.tried(endpoint, well=finding.outcome == "proved", now_s=desk.now_s()):
            desk.log.event(f"worker {endpoint.id}: answers again")
            self._changed.set()
        else:
            desk.log.event(f"worker {endpoint.id}: still left out: {finding.reason}")

    async def _probe(self) -> None:
        probes: dict[tuple[str, str], asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:  # one that hangs must not keep the others from coming back
            while True:
                there = (*self._desk.roster.endpoints, *self._desk.pools.retired())
                endpoints = {(each.id, each.generation): each for each in there}
                for gone in self._answered_s.keys() - endpoints.keys():
                    del self._answered_s[gone]
                probes = {key: task for key, task in probes.items() if not task.done()}
                for key, endpoint in endpoints.items():
                    if key not in probes:
                        probes[key] = group.create_task(self._probe_one(endpoint))
                await asyncio.sleep(_HEALTH_S)

    async def _probe_one(self, endpoint: Endpoint) -> None:
        desk = self._desk
        key = (endpoint.id, endpoint.generation)
        last_s = self._answered_s.setdefault(key, desk.now_s())
        try:
            status = await self._health(endpoint)
        except AskError as error:
            silent_s = desk.now_s() - last_s
            if error.timed_out and silent_s < _UNRESPONSIVE_S:
                return
            if desk.roster.probed(endpoint, well=False):
                desk.log.event(f"worker {endpoint.id}: left out: {error}")
            if error.timed_out:  # what is gone breaks its connections itself; what hangs does not
                desk.pools.break_off(endpoint, f"{endpoint.id} has not answered for {silent_s:.0f} s")
            return
        self._answered_s[key] = desk.now_s()
        if desk.roster.probed(endpoint, well=status == _OK):
            desk.log.event(f"worker {endpoint.id}: /health says {status}")
            self._changed.set()

    async def _health(self, endpoint: Endpoint) -> int:
        """The status of `/health`; tried twice, as a kept connection may have been closed a moment ago."""
        try:
            status, _ = await ask(self._desk.pools, endpoint, "/health", timeout_s=_HEALTH_TIMEOUT_S)
        except AskError as error:
            if error.timed_out:
                raise
            status, _ = await ask(self._desk.pools, endpoint, "/health", timeout_s=_HEALTH_TIMEOUT_S)
        return status
