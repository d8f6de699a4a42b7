"""One worker's life: started or adopted, awaited, proved, announced, watched, started again when it dies, drained."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from hpcserve.agent.http import UnreachableError, ask
from hpcserve.agent.life import fresh_generation
from hpcserve.agent.listeners import listens_on
from hpcserve.agent.network import host_in_url
from hpcserve.agent.processes import Program, adopt, end_orphans, ended_by_stop, session_members, start
from hpcserve.agent.proof import Proof, is_healthy, prove
from hpcserve.agent.restarts import MAX_DEATHS, Restarts
from hpcserve.agent.station import LOG, Station
from hpcserve.discovery import announce, log_tail, read_dir_record, withdraw
from hpcserve.engines import explain_failure
from hpcserve.errors import ServiceError
from hpcserve.nouns import Endpoint, PlannedWorker, WorkerState
from hpcserve.wire import UnreadableRecordError

__all__ = ["Worker"]

Phase = Literal["waiting", "starting", "proving", "ready", "draining", "restarting", "failed", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Death:
    reason: str
    code: int | None
    served_s: float | None
    waited_in_vain: bool = False


class _NeverHealthyError(ServiceError):
    """The time for its start is used up."""


class Worker:
    """Keeps one planned worker alive on its node until told to stop, or until starting it again is hopeless."""

    def __init__(self, station: Station, planned: PlannedWorker) -> None:
        if planned.port is None:
            raise ServiceError(f"worker {planned.id} has no port in plan.json", remedy="submit the service again")
        self.id = planned.id
        self.failed = False
        self._station = station
        self._planned = planned
        self._port = planned.port
        self._url = f"http://{host_in_url(station.node.control_address)}:{planned.port}"
        self._restarts = Restarts()
        self._ready_since_s: float | None = None
        self._announced: Endpoint | None = None
        self._log_from_bytes = 0

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping` is set and the worker has drained, or it has failed for good."""
        program = await self._adopted()
        while not stopping.is_set():
            death: _Death | None
            try:
                if program is None:
                    program = self._start()
                death = await self._live(program, stopping)
            except OSError as error:
                death = _Death(reason=f"it could not be started: {error}", code=1, served_s=None)
            program = None
            if death is None or await ended_by_stop(death.code, stopping):
                break
            self._restarts = self._restarts.after_death(served_s=death.served_s, waited_in_vain=death.waited_in_vain)
            reason = self._explained(death.reason)
            if self._restarts.exhausted:
                self.failed = True
                LOG.error("%s: failed %d times in a row, given up: %s", self.id, MAX_DEATHS, reason)
                self._say("failed", reason, tail=self._tail())
                await stopping.wait()
                return
            LOG.warning("%s: %s; starting it again in %.0f s", self.id, reason, self._restarts.pause_s)
            self._say("restarting", reason)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), timeout=self._restarts.pause_s)
        if program is not None:  # adopted when the stop had already come
            await self._leave(program)
        self._station.pid_path(self.id).unlink(missing_ok=True)
        self._say("stopped")

    async def _adopted(self) -> Program | None:
        """The worker that an earlier agent of this life started, if it still runs; else nothing of it does."""
        station = self._station
        program = adopt(station.pid_path(self.id), node=station.node.name)
        if program is None:
            withdraw(station.job_directory, self.id)
            if await end_orphans(
                station.pid_path(self.id), node=station.node.name, terminate_s=station.pace.terminate_s
            ):
                LOG.warning("%s: it had died meanwhile; ended what it left running", self.id)
            self._say("waiting")
            return None
        LOG.info("%s: adopted, pid %d", self.id, program.pid)
        return program

    def _start(self) -> Program:
        """Raises OSError, also where a port that this worker needs is somebody else's now."""
        needed = {self._port, *self._side_channel_ports(), *(self._event_ports() or ())}
        taken = needed & set(self._station.ports.hold())
        if taken:
            raise OSError(f"port {min(taken)} is held by another process of this node")
        log = self._station.log_path(self.id)
        self._log_from_bytes = log.stat().st_size if log.is_file() else 0
        generation = fresh_generation(self._station.life)
        program = start(
            ("bash", f"workers/{self.id}.sh"),
            node=self._station.node.name,
            generation=generation,
            record_path=self._station.pid_path(self.id),
            log_path=log,
            environment=os.environ,
            directory=self._station.job_directory,
        )
        LOG.info("%s: started, pid %d, generation %s", self.id, program.pid, generation)
        self._say("starting")
        return program

    def _side_channel_ports(self) -> range:
        first = self._planned.side_channel_port
        return range(0) if first is None else range(first, first + self._planned.tensor_parallel)

    def _event_ports(self) -> tuple[int, int] | None:
        return self._station.adapter.event_ports(self._station.service, self._planned)

    async def _live(self, program: Program, stopping: asyncio.Event) -> _Death | None:
        """From its start to its end; None where the end was asked for."""
        self._ready_since_s = None
        ended = asyncio.create_task(program.ended())
        served = asyncio.create_task(self._serve(program))
        stopped = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait((ended, served, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (served, stopped):
                task.cancel()
            if not ended.done():
                ended.cancel()
            await asyncio.gather(ended, served, stopped, return_exceptions=True)
        served_s = self._served_s()
        code: int | None = 1
        waited_in_vain = False
        if not ended.cancelled():
            code = ended.result()
            reason = f"it ended by itself{'' if code is None else f' with {_named(code)}'}"
        elif stopping.is_set():
            await self._leave(program)
            return None
        else:
            trouble = _trouble(served)
            reason, waited_in_vain = str(trouble), isinstance(trouble, _NeverHealthyError)
        await self._withdraw()
        # its children outlive it, and hold its GPU and ports
        await program.end(terminate_s=self._station.pace.terminate_s if ended.cancelled() else 0)
        return _Death(reason=reason, code=code, served_s=served_s, waited_in_vain=waited_in_vain)

    async def _serve(self, program: Program) -> None:
        """Await health, prove, announce, then watch; ends only by raising ServiceError."""
        pace = self._station.pace
        known = self._known_endpoint(program)
        if known is None:
            await self._until_healthy(program)
            self._say("proving")
            proof = await prove(
                self._url, model=self._station.service.served_name, key=self._station.engine_key, timeout_s=pace.proof_s
            )
            self._check_own(program)
            known = self._endpoint(program, proof)
        await self._insist("announced", lambda: announce(self._station.job_directory, known))
        self._announced = known
        self._ready_since_s = self._now_s()
        self._say("ready")
        LOG.info("%s: ready at %s", self.id, self._url)
        answered_s = self._now_s()
        while True:
            await asyncio.sleep(pace.health_s)
            if await is_healthy(self._url, timeout_s=pace.health_s * 2):
                answered_s = self._now_s()
            elif self._now_s() - answered_s > pace.hang_s:
                raise ServiceError(f"it answered no question about its health for {pace.hang_s:.0f} s")

    async def _until_healthy(self, program: Program) -> None:
        pace = self._station.pace
        deadline = self._now_s() + pace.start_s
        while not await is_healthy(self._url, timeout_s=pace.health_s):
            if self._now_s() > deadline:
                raise _NeverHealthyError(f"it was not healthy {pace.start_s:.0f} s after its start")
            await asyncio.sleep(pace.poll_s)
        LOG.info("%s: healthy", self.id)
        self._check_own(program)

    def _check_own(self, program: Program) -> None:
        """A healthy answer counts only if this very worker listens: another job's would answer as well."""
        if not listens_on(self._port, session_members(program.pid)):
            raise ServiceError(f"port {self._port} answers, but not from this worker: Address already in use")

    def _known_endpoint(self, program: Program) -> Endpoint | None:
        """What an earlier agent announced of this very start of the worker."""
        try:
            endpoint = read_dir_record(self._station.job_directory / "endpoints", f"{self.id}.json", Endpoint)
        except (UnreadableRecordError, OSError):
            return None  # it is proved again then
        if endpoint is None or endpoint.generation != program.record.generation or endpoint.draining:
            return None
        return endpoint

    def _endpoint(self, program: Program, proof: Proof) -> Endpoint:
        station = self._station
        counters = station.adapter.read_counters(proof.metrics_text)
        host = host_in_url(station.node.control_address)
        events = [f"tcp://{host}:{port}" for port in self._event_ports() or ()]
        return Endpoint(
            id=self.id,
            generation=program.record.generation,
            role=self._planned.role,
            url=self._url,
            node=station.node.name,
            pid=program.pid,
            model=station.service.served_name,
            engine=station.node.engine.name,
            engine_version=station.node.engine.version,
            handoff=station.adapter.handoff(station.service, self._planned, station.node.engine, counters),
            max_model_len=proof.max_model_len,
            events_url=events[0] if events else None,
            events_replay_url=events[1] if events else None,
            simulated=station.node.engine.platform == "simulated",
        )

    async def _leave(self, program: Program) -> None:
        """Drain: say so, let requests in flight end, end the worker, take its endpoint back."""
        pace = self._station.pace
        if self._announced is not None:
            self._say("draining")
            draining = self._announced.model_copy(update={"draining": True})
            with contextlib.suppress(OSError):  # the worker ends all the same, and the router sees that
                announce(self._station.job_directory, draining)
            await asyncio.sleep(pace.notice_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._until_idle(), timeout=pace.drain_s - pace.notice_s)
        await program.end(terminate_s=pace.terminate_s)
        await self._withdraw()

    async def _until_idle(self) -> None:
        while await self._is_busy():  # noqa: ASYNC110 - the engine can only be asked
            await asyncio.sleep(self._station.pace.poll_s)

    async def _is_busy(self) -> bool:
        """Whether requests are in flight; a worker that does not say has none that could end well."""
        try:
            answer = await ask(
                f"{self._url}/metrics", key=self._station.engine_key, timeout_s=self._station.pace.health_s
            )
            counters = self._station.adapter.read_counters(answer.text)
        except (UnreachableError, ServiceError):
            return False
        return counters.running + counters.waiting > 0

    async def _withdraw(self) -> None:
        self._announced = None
        await self._insist("withdrawn", lambda: withdraw(self._station.job_directory, self.id))

    async def _insist(self, what: str, write: Callable[[], None]) -> None:
        """Do it again while the file system refuses: a full quota must neither kill a worker nor keep a dead one."""
        told = False
        while True:
            try:
                write()
            except OSError as error:
                if not told:
                    LOG.warning("%s: could not be %s, trying on: %s", self.id, what, error)
                told = True
            else:
                return
            await asyncio.sleep(1.0)

    def _say(self, phase: Phase, detail: str = "", *, tail: tuple[str, ...] = ()) -> None:
        self._station.record_state(
            WorkerState(
                id=self.id,
                role=self._planned.role,
                node=self._station.node.name,
                phase=phase,
                restarts=self._restarts.total,
                detail=detail,
                log_tail=tail,
            )
        )

    def _tail(self) -> tuple[str, ...]:
        """The last lines of what this start of the worker wrote; logs are appended to."""
        return log_tail(self._station.log_path(self.id), from_bytes=self._log_from_bytes)

    def _explained(self, reason: str) -> str:
        cause = explain_failure((*self._tail(), reason))
        return f"{reason}: {cause}" if cause else reason

    def _served_s(self) -> float | None:
        return None if self._ready_since_s is None else self._now_s() - self._ready_since_s

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()


def _trouble(served: asyncio.Task[None]) -> ServiceError:
    """Why serving ended; raises what is no trouble of the worker's."""
    error = served.exception()
    if not isinstance(error, ServiceError):
        raise error or AssertionError("serving ends by an error only")
    return error


def _named(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
