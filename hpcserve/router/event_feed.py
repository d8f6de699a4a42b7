"""Follows one life of one worker: its KV events by ZeroMQ, in order, into the index.

vLLM publishes on a PUB socket: [topic, number (8 bytes, big-endian), msgpack]. A ROUTER socket repeats what it still
has: asked with [empty, first number], it sends [empty, topic, number, msgpack] each, all ones for a number at the end.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import zmq
import zmq.asyncio

from hpcserve.routing import (
    MOST_BATCH_BYTES,
    EventOrder,
    Intake,
    IntakeCounts,
    KvIndex,
    Lost,
    UnreadableEventsError,
    read_batch,
)

__all__ = ["EventFeed"]

_QUIET_S = 15.0
"""After so long without a batch the worker is asked whether there was one: the last of a burst may be dropped."""
_ANSWER_S = 10.0
"""vLLM answers a replay between two batches, at the latest 0.1 s after the last one."""
_MOST_QUEUED = 20_000
"""Batches that ZeroMQ keeps while the loop is busy; beyond it they are dropped here, and replayed."""
_GATHER_S = 0.005
"""Batches of so long are read together: to be woken for each costs more than to read it."""
_AT_ONCE = 8
"""Batches read before requests have their turn: 0.2 ms of one block each, 1 ms of prompts of 128 blocks."""
_NUMBER_BYTES = 8
_END = b"\xff" * _NUMBER_BYTES
_FRAMES = 3


@dataclass(slots=True, kw_only=True)
class FeedCounts:
    """What came so far."""

    batches: int = 0
    lost_batches: int = 0
    """Not to be had any more when they were asked for; the worker's entries were dropped for it."""
    unreadable: int = 0
    last_s: float | None = None
    """When the last batch came, by the loop's clock."""
    lag_s: float = 0.0
    """How old it was, by the two nodes' clocks."""


class EventFeed:
    """One subscription. `run` ends only by being cancelled, or by an error; it may be run again."""

    def __init__(
        self,
        context: zmq.asyncio.Context,
        index: KvIndex,
        *,
        worker: str,
        url: str,
        replay_url: str | None,
        log: Callable[[str], None],
        now_s: Callable[[], float],
        unix_s: Callable[[], float],
    ) -> None:
        self.counts = FeedCounts()
        self._context = context
        self._worker = worker
        self._url = url
        self._replay_url = replay_url
        self._log = log
        self._now_s = now_s
        self._unix_s = unix_s
        self._order = EventOrder(replays=replay_url is not None)
        self._intake = Intake(index, worker)
        self._said = ""

    @property
    def blocks(self) -> IntakeCounts:
        """What became of the blocks."""
        return self._intake.counts

    async def run(self) -> None:
        """Follow until cancelled, from all that the worker still has on."""
        self._order = EventOrder(replays=self._replay_url is not None)
        with self._context.socket(zmq.SUB) as live:
            live.set_hwm(_MOST_QUEUED)
            live.setsockopt(zmq.MAXMSGSIZE, MOST_BATCH_BYTES)
            live.setsockopt(zmq.LINGER, 0)
            live.setsockopt(zmq.IPV6, 1)
            live.subscribe(b"")
            live.connect(self._url)
            while True:
                if self._order.wanted:
                    await self._replay()
                    continue
                if await live.poll(int(_QUIET_S * 1000)):
                    await self._drain(live)
                    await asyncio.sleep(_GATHER_S)
                elif self._replay_url is not None:
                    self._order.wanted = True

    async def _drain(self, live: zmq.asyncio.Socket) -> None:
        """Take all that is there, until a replay is wanted first."""
        there: zmq.Socket[bytes] = zmq.Socket.shadow(live)  # closing it would close the socket
        while not self._order.wanted:
            try:
                frames = there.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if len(frames) != _FRAMES or len(frames[1]) != _NUMBER_BYTES:
                self._unreadable(f"a message of {len(frames)} parts")
            else:
                await self._do(self._order.live(int.from_bytes(frames[1]), frames[2]))

    async def _replay(self) -> None:
        start = self._order.replay_began()
        whole = False
        async for number, payload in self._repeated(start):
            if number is None:
                whole = True
                break
            await self._do(self._order.replayed(number, payload))
        await self._do(self._order.replay_ended(whole=whole))

    async def _repeated(self, start: int) -> AsyncIterator[tuple[int | None, bytes]]:
        """(number, payload) of what the worker repeats, and (None, empty) at its end, if that comes."""
        if self._replay_url is None:
            return
        with self._context.socket(zmq.DEALER) as asked:
            asked.set_hwm(0)
            asked.setsockopt(zmq.MAXMSGSIZE, MOST_BATCH_BYTES)
            asked.setsockopt(zmq.LINGER, 0)
            asked.setsockopt(zmq.IPV6, 1)
            asked.connect(self._replay_url)
            await asked.send_multipart([b"", start.to_bytes(_NUMBER_BYTES)])
            while await asked.poll(int(_ANSWER_S * 1000)):
                _, *frames = await asked.recv_multipart()
                if len(frames) != _FRAMES or len(frames[1]) != _NUMBER_BYTES:
                    self._unreadable(f"a replayed message of {len(frames) + 1} parts")
                elif frames[1] == _END:
                    yield None, b""
                else:
                    yield int.from_bytes(frames[1]), frames[2]

    async def _do(self, steps: list[bytes | Lost]) -> None:
        for step in steps:
            if isinstance(step, Lost):
                self._lost(step.batches)
                continue
            self.counts.batches += 1
            self.counts.last_s = self._now_s()
            try:
                batch = read_batch(step)
                self._intake.take(batch)
            except UnreadableEventsError as error:
                self._unreadable(str(error))
            except Exception as error:  # noqa: BLE001 - one batch must not end the feed: it would come again
                self._unreadable(type(error).__name__)  # its words may hold a prompt
            else:
                self.counts.lag_s = max(0.0, self._unix_s() - batch.sent_unix_s)
            if not self.counts.batches % _AT_ONCE:
                await asyncio.sleep(0)  # a burst must not hold up requests

    def _lost(self, batches: int) -> None:
        self.counts.lost_batches += batches
        self._intake.forget()
        what = f"{batches} batches of KV events are lost" if batches else "its KV events are numbered anew"
        self._log(f"worker {self._worker}: {what}; what it holds is learnt anew")

    def _unreadable(self, reason: str) -> None:
        """What it said is not known, so nothing of before is certain; said once, as it mostly comes again and again."""
        self.counts.unreadable += 1
        self._intake.forget()
        if reason != self._said:
            self._said = reason
            self._log(f"worker {self._worker}: KV events cannot be read: {reason}")
