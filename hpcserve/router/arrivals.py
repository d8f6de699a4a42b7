"""Whether KV has come for answers that are not streamed and so show no first token: told by their workers' counters."""

import asyncio
from collections.abc import Callable

from hpcserve.engines import EngineCounters
from hpcserve.nouns import Endpoint
from hpcserve.router.ask import AskError
from hpcserve.router.counters import CounterReader

__all__ = ["Arrivals"]


class Arrivals:
    """Reads a worker's counters as long as somebody asks for it: one reading for all of them, `apart_s` apart."""

    def __init__(self, counters: CounterReader, *, apart_s: float) -> None:
        self._counters = counters
        self._apart_s = apart_s
        self._asked: dict[tuple[str, str], dict[object, Callable[[], None]]] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    def watch(self, worker: Endpoint, arrived: Callable[[], None]) -> Callable[[], None]:
        """Call `arrived` once nobody at that worker waits for KV; returns how to give it up.

        The caller's own request must have been with the worker for some time: it is not looked for by name.
        """
        key = (worker.id, worker.generation)
        asked = self._asked.setdefault(key, {})
        mark = object()
        asked[mark] = arrived
        if key not in self._tasks:
            self._tasks[key] = asyncio.get_running_loop().create_task(self._look(key, worker))

        def give_up() -> None:
            asked.pop(mark, None)

        return give_up

    async def _look(self, key: tuple[str, str], worker: Endpoint) -> None:
        asked = self._asked[key]
        earlier: EngineCounters | None = None
        then: tuple[object, ...] = ()
        try:
            while asked:
                now = tuple(asked)
                found = await self._read(worker)
                if earlier is not None and found is not None and _nobody_waits(earlier, found):
                    for mark in then:
                        arrived = asked.pop(mark, None)
                        if arrived is not None:
                            arrived()
                earlier, then = found, now
                if asked:
                    await asyncio.sleep(self._apart_s)
        finally:
            del self._tasks[key], self._asked[key]

    async def _read(self, worker: Endpoint) -> EngineCounters | None:
        try:
            return await self._counters.of(worker)
        except AskError:
            return None

    async def close(self) -> None:
        """Look no more."""
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _nobody_waits(first: EngineCounters, second: EngineCounters) -> bool:
    """Whether, at the second reading, nobody waits for a turn or for KV, and tokens were made since the first.

    So it speaks of a step behind the first: a worker whose engine stands still goes on to show what it counted last.
    """
    return not second.waiting and second.generation_tokens > first.generation_tokens
