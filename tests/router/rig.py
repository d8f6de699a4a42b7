"""Fake engines and a router's sessions before them, on real sockets."""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hpcserve.discovery import Snapshot
from hpcserve.engines import read_counters
from hpcserve.nouns import Endpoint, Role, RouterState, Workload
from hpcserve.router.arrivals import Arrivals
from hpcserve.router.counters import CounterReader
from hpcserve.router.desk import Desk, Limits
from hpcserve.router.keys import KeyRing
from hpcserve.router.ledger import Finding
from hpcserve.router.log import Log
from hpcserve.router.metrics import Metrics
from hpcserve.router.pool import Pools
from hpcserve.router.prove import Prover
from hpcserve.router.roster import Candidate, Roster
from hpcserve.router.session import Session
from hpcserve.router.stalls import Stalls
from hpcserve.router.watching import Watcher
from tests.router.client import KEY, Answer, Connection, request
from tests.router.fake_engine import ENGINE_KEY, MODEL, FakeEngine
from tests.router.plans import plan_of

WORKLOAD = Workload(input_tokens=512, output_tokens=64)


class Rig:
    """Fake engines and a router's sessions before them. All pairs count as proved unless `proved` is False."""

    def __init__(
        self,
        *engines: FakeEngine,
        limits: Limits | None = None,
        proved: bool = True,
        transfer_ms: dict[tuple[str, str], float] | None = None,
        sweep_s: float = 0.02,
    ) -> None:
        self.engines = list(engines) or [FakeEngine(Role.PREFILL), FakeEngine(Role.DECODE)]
        self._limits = limits or Limits()
        self._proved = proved
        self._transfer_ms = transfer_ms
        self._sweep_s = sweep_s
        self.sessions: set[Session] = set()
        self._stack = AsyncExitStack()
        self._connections: list[Connection] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for engine in self.engines:
            await engine.start()
            self._stack.push_async_callback(engine.stop)
        self.pools = Pools(loop=loop)
        self.counters = CounterReader(self.pools, read_counters)
        self.prover = Prover(
            self.pools,
            self.counters,
            key=ENGINE_KEY,
            handoff_s=self._limits.handoff_s,
            leg_timeout_s=5,
            counters_timeout_s=0.5,
        )
        log = os.open(os.devnull, os.O_WRONLY)
        self._stack.callback(os.close, log)
        arrivals = Arrivals(self.counters, apart_s=0.02)
        self._stack.push_async_callback(arrivals.close)
        self.desk = Desk(
            roster=Roster(plan_of(self.engines, self._transfer_ms), model=MODEL, workload=WORKLOAD),
            pools=self.pools,
            metrics=Metrics(),
            log=Log(log),
            limits=self._limits,
            now_s=loop.time,
            keys=KeyRing(KEY.encode()),
            engine_key=ENGINE_KEY.encode(),
            arrivals=arrivals,
        )
        self.see()
        if self._proved:
            self.prove_all()
        server = await loop.create_server(lambda: Session(self.desk, self.sessions), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        sweep = loop.create_task(self._sweep())

        async def end() -> None:
            sweep.cancel()
            server.close()
            for connection in self._connections:
                connection.close()
            for session in tuple(self.sessions):
                session.close()
            self.pools.close()
            await asyncio.sleep(0.02)

        self._stack.push_async_callback(end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def see(self) -> None:
        """What discovery would do when engines came or changed."""
        endpoints = tuple(engine.endpoint for engine in self.engines)
        self.desk.roster.take(endpoints)
        self.pools.keep_only(endpoints)

    def watcher(self, state_path: Path, there: Callable[[], Sequence[Endpoint]] | None = None) -> Watcher:
        """What the router's process has beside its sessions. `there`: the endpoints; else those of all engines."""
        seen = there or (lambda: [engine.endpoint for engine in self.engines])
        return Watcher(
            self.desk,
            look=lambda: Snapshot(endpoints=tuple(seen()), warnings=()),
            prover=self.prover,
            stalls=Stalls(self.desk, self.counters),
            sessions=self.sessions,
            state_path=state_path,
        )

    def prove_all(self) -> None:
        for candidate in list(self.desk.roster.candidates(0.0)):
            self.desk.roster.record(candidate, Finding(outcome="proved", reason="as told"), now_s=0.0)

    async def prove_next(self) -> tuple[Candidate, Finding]:
        candidate = next(iter(self.desk.roster.candidates(self.desk.now_s())))
        finding = await self.prover.prove(candidate)
        self.desk.roster.record(candidate, finding, now_s=self.desk.now_s())
        return candidate, finding

    def state(self) -> RouterState:
        return self.desk.roster.state(ready_since_utc=None)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_s)
            self.desk.turns.seen(self.desk.now_s())
            for timed in tuple(self.desk.timed):
                timed.check_time(self.desk.now_s())
            for session in tuple(self.sessions):
                session.check_time(self.desk.now_s())

    async def connect(self) -> Connection:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        self._connections.append(connection)
        return connection

    async def ask(self, path: str, body: Any = None, **headers: str) -> Answer:
        """One request on a connection of its own."""
        connection = await self.connect()
        await connection.write(request("GET" if body is None else "POST", path, body, **headers))
        answer = await asyncio.wait_for(connection.answer(), 10)
        connection.close()
        return answer

    async def settle(self) -> None:
        """Until nothing is under way; the counts must then be back to nothing."""
        for _ in range(200):
            if not self.desk.metrics.in_flight and not any(load.in_flight for load in self.desk.roster.loads.values()):
                break
            await asyncio.sleep(0.01)
        assert self.desk.metrics.in_flight == 0
        for name, load in self.desk.roster.loads.items():
            assert (load.in_flight, load.transfers) == (0, 0), name
        assert not self.desk.timed
