"""The lease rule: KV that is pulled late may be another request's, so a first token must come within half the lease.

The limit counts from the prefill's answer and is half the lease (`main.handoff_limit_s`): a pull that has ended by then
ended within the lease, whatever the clocks and queues between took.
"""

from collections.abc import Callable

from hpcserve.nouns import Endpoint
from hpcserve.router.desk import Desk

__all__ = ["LeaseWatch"]

_SLACK_S = 1.0
"""The sweep that looks comes a few times a second."""


class LeaseWatch:
    """Watches one decode leg. `late` is called at most once, when the leg must be dropped."""

    __slots__ = ("_deadline_s", "_decode", "_desk", "_give_up_looking", "_late", "_limit_s", "_looked_at_s", "_stream")

    def __init__(self, desk: Desk, *, decode: Endpoint, stream: bool, late: Callable[[], None]) -> None:
        self._desk = desk
        self._decode = decode
        self._stream = stream
        self._late = late
        self._limit_s = desk.limits.handoff_s
        self._deadline_s: float | None = None if self._limit_s is None else desk.now_s() + self._limit_s
        self._looked_at_s: float | None = None
        self._give_up_looking: Callable[[], None] | None = None

    def check(self, now_s: float) -> None:
        """Act if the limit has passed. To be called several times a second."""
        if self._deadline_s is None or self._limit_s is None or now_s < self._deadline_s:
            return
        if self._stream:
            self._late()
        elif self._looked_at_s is None:
            # An answer that is not streamed shows no first token; its worker's counters tell whether it still waits.
            self._looked_at_s = now_s
            self._give_up_looking = self._desk.look_for_kv(self._decode, self._looked)
        elif now_s >= self._looked_at_s + self._limit_s:
            self._late()

    def _looked(self, arrived: bool) -> None:
        self._give_up_looking = None
        if arrived:
            self._deadline_s = None
        else:
            self._late()

    def in_time(self) -> bool:
        """Whether a first token that comes now may be believed.

        One that is not streamed may while the counters are still being looked at, or are about to be: what is left of
        the lease is longer than that.
        """
        if self._deadline_s is None or self._limit_s is None or self._looked_at_s is not None:
            return True
        slack_s = 0.0 if self._stream else min(_SLACK_S, self._limit_s / 2)
        return self._desk.now_s() <= self._deadline_s + slack_s

    def stop(self) -> None:
        """The leg is over, or its first token is there."""
        self._deadline_s = None
        if self._give_up_looking is not None:
            self._give_up_looking()
            self._give_up_looking = None
