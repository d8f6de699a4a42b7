"""A link that several transfers share evenly, each finishing when its bytes would have passed."""

import asyncio
import heapq
import time
from collections.abc import Callable
from itertools import count

__all__ = ["SharedLink"]


class SharedLink:
    """One-way, `gb_per_s` GB/s for all transfers together; n at once get 1/n each, as UCX does over one TCP link."""

    def __init__(self, gb_per_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        """The clock is not the loop's: uvloop's stands still within a millisecond."""
        self._clock = clock
        self._bytes_per_s = gb_per_s * 1e9
        self._carried = 0.0
        """Bytes that each transfer has moved that was there from the beginning."""
        self._seen_s = 0.0
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None

    async def carry(self, size_bytes: int) -> None:
        """Return when `size_bytes` have passed."""
        loop = asyncio.get_running_loop()
        self._advance()
        done: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiting, (self._carried + size_bytes, next(self._order), done))
        self._schedule(loop)
        try:
            await done
        finally:
            if not done.done() or done.cancelled():
                self._advance()
                self._waiting = [entry for entry in self._waiting if entry[2] is not done]
                heapq.heapify(self._waiting)
                self._schedule(loop)

    def _advance(self) -> None:
        now_s = self._clock()
        if self._waiting:
            self._carried += (now_s - self._seen_s) * self._bytes_per_s / len(self._waiting)
        self._seen_s = now_s

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            left_bytes = max(0.0, self._waiting[0][0] - self._carried)
            delay_s = left_bytes * len(self._waiting) / self._bytes_per_s
            self._timer = loop.call_later(delay_s, self._finish_first, loop)

    def _finish_first(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._advance()
        if self._waiting:
            end, _, done = heapq.heappop(self._waiting)
            self._carried = max(self._carried, end)
            if not done.done():
                done.set_result(None)
        self._schedule(loop)
