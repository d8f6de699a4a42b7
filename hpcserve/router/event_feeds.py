"""The feeds of all workers that tell of their KV: one for each generation, and nothing left of those that are gone."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import zmq.asyncio

from hpcserve.nouns import Endpoint
from hpcserve.router.event_feed import EventFeed
from hpcserve.routing import KvIndex

__all__ = ["EventFeeds"]

_SLICE_PAUSE_S = 0.002
_LOOK_S = 0.1
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
"""Before a feed that failed is begun anew: after its first failure, and after many in a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Followed:
    feed: EventFeed
    generation: str
    task: asyncio.Task[None]


class EventFeeds:
    """Follows who is there. To be made and used on one running loop."""

    def __init__(self, index: KvIndex, *, log: Callable[[str], None], now_s: Callable[[], float]) -> None:
        self._index = index
        self._log = log
        self._now_s = now_s
        self._context = zmq.asyncio.Context()
        self._followed: dict[str, _Followed] = {}
        self.failures: dict[str, str] = {}
        """Workers whose feed failed, in words; whoever doubts a worker for it takes it out."""
        self._sweeping = asyncio.create_task(self._sweep())

    @property
    def feeds(self) -> Mapping[str, EventFeed]:
        """By worker id."""
        return {worker: each.feed for worker, each in self._followed.items()}

    def follow(self, endpoints: Iterable[Endpoint]) -> None:
        """These are the workers now. One of another generation is another one: it holds nothing of the last one's."""
        there = {endpoint.id: endpoint for endpoint in endpoints if endpoint.events_url is not None}
        for worker, followed in tuple(self._followed.items()):
            endpoint = there.get(worker)
            if endpoint is None or endpoint.generation != followed.generation:
                followed.task.cancel()
                del self._followed[worker]
                self.failures.pop(worker, None)
                self._index.clear(worker)
        for worker, endpoint in there.items():
            if worker not in self._followed:
                self._start(endpoint)

    def _start(self, endpoint: Endpoint) -> None:
        feed = EventFeed(
            self._context,
            self._index,
            worker=endpoint.id,
            url=endpoint.events_url or "",
            replay_url=endpoint.events_replay_url,
            log=self._log,
            now_s=self._now_s,
            unix_s=time.time,
        )
        task = asyncio.create_task(self._keep(feed, endpoint.id))
        self._followed[endpoint.id] = _Followed(feed=feed, generation=endpoint.generation, task=task)

    async def _keep(self, feed: EventFeed, worker: str) -> None:
        """Follow, again after each failure; what failed may have left anything in the index, so that is dropped."""
        now_s = asyncio.get_running_loop().time
        pause_s, said = _FIRST_PAUSE_S, ""
        while True:
            start_s = now_s()
            try:
                await feed.run()
            except Exception as error:  # noqa: BLE001 - an address that is none, or whatever else ended it
                self._index.clear(worker)
                reason = self.failures[worker] = f"its KV events cannot be followed: {error or type(error).__name__}"
                if reason != said:
                    self._log(f"worker {worker}: {reason}; it is tried again")
                said = reason
            if now_s() - start_s > _LONGEST_PAUSE_S:
                pause_s = _FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _sweep(self) -> None:
        """Free what gone workers held, a slice at a time."""
        while True:
            more = self._index.sweep()
            await asyncio.sleep(_SLICE_PAUSE_S if more else _LOOK_S)

    async def close(self) -> None:
        """End all of them."""
        tasks = [self._sweeping, *(each.task for each in self._followed.values())]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._followed.clear()
        self._context.destroy(linger=0)
