"""Simulated workers as an agent keeps them, and who kills them, pauses them and has them started again."""

import asyncio
import random
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from hpcserve.discovery import withdraw
from hpcserve.nouns import Role
from hpcserve.wire import encode_record
from tests.router.plans import plan_of
from tests.router.processes import Job

LEASE_S = 10
"""Of the workers' KV; long enough for a machine that has other things to do."""
_STARTS_WITHIN_S = 600.0
"""All of them start at once, and anew while the machine is busy with requests; one that dies is noticed at once."""
_EVERY_S = (1.0, 6.0)
"""Between one disturbance and the next."""
_MOST_HURT = 2
_PORTS = range(20_000, 30_000)
"""Below those that the kernel gives to outgoing connections: one of them could take a dead worker's."""
_WEIGHTS = {"kill": 50, "pause": 24, "long pause": 18, "freeze": 3, "router pause": 5}
_LENGTHS_S = {
    "pause": (0.05, 1.5),
    "long pause": (1.05 * LEASE_S, 1.8 * LEASE_S),
    "freeze": (33.0, 36.0),  # longer than `/health` may be silent: the router gives up what it has there
    "router pause": (0.3, 0.8 * LEASE_S),
}
_FATAL = frozenset({"kill", "freeze"})


@dataclass(kw_only=True)
class Worker:
    id: str
    role: Role
    number: int
    ports: tuple[int, int]
    process: subprocess.Popen[bytes] | None = None
    lives: int = 0
    hurt: bool = False


class Crew:
    def __init__(self, job: Job, *, prefill: int, decode: int, seed: int, words: tuple[str, ...]) -> None:
        """`words`: further arguments of the engines."""
        self._job = job
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._words = words
        ports = _free_ports(2 * (prefill + decode))
        self.workers = [
            Worker(id=f"{role}-{number}", role=role, number=number, ports=(ports.pop(), ports.pop()))
            for role, count in ((Role.PREFILL, prefill), (Role.DECODE, decode))
            for number in range(count)
        ]
        self.done: Counter[str] = Counter()
        """What was done to workers, and to the router."""
        self._losses: list[tuple[str, float]] = []
        """Which worker was lost with what it had, and when."""
        (job.directory / "plan.json").write_bytes(encode_record(plan_of(self.workers)))

    async def start(self) -> None:
        await asyncio.gather(*map(self._start, self.workers))

    def lost(self, worker_id: str, since_s: float) -> bool:
        """Whether that worker was lost after that time."""
        return any(name == worker_id and at_s >= since_s for name, at_s in self._losses)

    async def disturb(self, router: subprocess.Popen[bytes], *, until_s: float) -> None:
        """Do harm until that time of the monotonic clock; in the end all are well again."""
        async with asyncio.TaskGroup() as group:
            while time.monotonic() < until_s:
                await asyncio.sleep(self._random.uniform(*_EVERY_S))
                well = [worker for worker in self.workers if not worker.hurt]
                worker = self._random.choice(well)
                (what,) = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
                if what == "router pause":
                    self.done[what] += 1
                    await self._pause(router, what)
                elif len(self.workers) - len(well) < _MOST_HURT:
                    self.done[what] += 1
                    group.create_task(self._harm(worker, what))

    async def _harm(self, worker: Worker, what: str) -> None:
        process = worker.process
        assert process is not None
        assert process.poll() is None, f"{worker.id} ended by itself with {process.returncode}"
        worker.hurt = True
        if what in _FATAL:
            self._losses.append((worker.id, time.monotonic()))
        if what == "kill":
            process.kill()
            await asyncio.to_thread(process.wait)
            await asyncio.sleep(self._random.uniform(0.0, 1.0))
            withdraw(self._job.directory, worker.id)
            await asyncio.sleep(self._random.uniform(0.0, 1.0))
            await self._start(worker)
        else:
            await self._pause(process, what)
        worker.hurt = False

    async def _pause(self, process: subprocess.Popen[bytes], what: str) -> None:
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(*_LENGTHS_S[what]))
        process.send_signal(signal.SIGCONT)

    async def _start(self, worker: Worker) -> None:
        worker.lives += 1
        start: Callable[..., subprocess.Popen[bytes]] = self._job.start_engine
        worker.process = await asyncio.to_thread(
            start,
            worker.role,
            f"g{worker.lives}",
            *self._words,
            number=worker.number,
            ports=worker.ports,
            within_s=_STARTS_WITHIN_S,
        )


def _free_ports(count: int) -> list[int]:
    found: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            break
    return found
