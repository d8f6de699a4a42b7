"""`Agenda`: what happens when, in order of time; at one time failures first, then arrivals, KV, ends of steps."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

__all__ = ["ARRIVAL", "BOUNDARY", "FAILURE", "FLOW", "Agenda"]

FAILURE: Final = 0
ARRIVAL: Final = 1
FLOW: Final = 2
BOUNDARY: Final = 3
"""Steps begin last, so that all that comes at one time takes part in them."""


class Agenda:
    """Times in ms. What is no longer true is not taken out: who is called looks at its version."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int, Callable[[Any, int], None], Any, int]] = []
        self._count = 0
        self.now_ms = 0.0

    def at(self, at_ms: float, rank: int, call: Callable[[Any, int], None], what: Any, version: int = 0) -> None:
        """Call `call(what, version)` then."""
        self._count += 1
        heappush(self._heap, (at_ms, rank, self._count, call, what, version))

    def next(self) -> bool:
        """Let the next thing happen; False where there is none."""
        if not self._heap:
            return False
        self.now_ms, _, _, call, what, version = heappop(self._heap)
        call(what, version)
        return True
