"""The lease rule: KV that is pulled late may be another request's, so a first token must come within half the lease.

The limit counts from the prefill's answer and is half the lease (`main.handoff_limit_s`): a pull that has ended by then
ended within the lease, whatever the clocks and queues between took. Where the router stood still and read that answer
late, it counts from the last moment at which it cannot have been there (`turns`). An answer that is not streamed is
whole when it comes and was pulled before that: it may take half as long again, three quarters of the lease; and without
end once its worker's counters say that the KV is there.
"""

from collections.abc import Callable

from hpcserve.nouns import Endpoint
from hpcserve.router.desk import Desk

__all__ = ["LeaseWatch", "longest_s"]


def longest_s(limit_s: float, *, stream: bool) -> float:
    """How long after the prefill's answer a first token, or a whole answer, may come."""
    return limit_s if stream else 1.5 * limit_s


class LeaseWatch:
    """Watches one decode leg. `late` is called at most once, when the leg must be dropped."""

    __slots__ = ("_decode", "_desk", "_give_up_looking", "_late", "_look_at_s", "_until_s")

    def __init__(
        self, desk: Desk, *, decode: Endpoint, stream: bool, late: Callable[[], None], since_s: float | None = None
    ) -> None:
        """`since_s`: when the prefill had answered; None: now."""
        limit_s = desk.limits.handoff_s
        since_s = desk.now_s() if since_s is None else since_s
        self._desk = desk
        self._decode = decode
        self._late = late
        self._until_s = float("inf")
        self._look_at_s = float("inf")
        if limit_s is not None:
            self._until_s = since_s + longest_s(limit_s, stream=stream)
            if not stream:
                # Not before: what the worker has not even taken in is not among those that wait there.
                self._look_at_s = since_s + limit_s / 2
        self._give_up_looking: Callable[[], None] | None = None

    def check(self, now_s: float) -> None:
        """Act if the limit has passed. To be called several times a second."""
        if now_s >= self._until_s:
            self._late()
        elif now_s >= self._look_at_s:
            self._look_at_s = float("inf")
            self._give_up_looking = self._desk.arrivals.watch(self._decode, self.stop)

    def in_time(self) -> bool:
        """Whether a first token, or an answer, that comes now may be believed."""
        return self._desk.now_s() <= self._until_s

    def stop(self) -> None:
        """The leg is over, or its KV is there."""
        self._until_s = self._look_at_s = float("inf")
        if self._give_up_looking is not None:
            self._give_up_looking()
            self._give_up_looking = None
