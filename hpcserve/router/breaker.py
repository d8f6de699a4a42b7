"""A circuit breaker: whether something that failed is to be used, left alone, or tried. No clock of its own."""

from typing import Literal

__all__ = ["Breaker", "BreakerState"]

BreakerState = Literal["closed", "half-open", "open"]
"""`closed`: in use. `open`: left alone. `half-open`: to be tried once, before anybody relies on it."""

_IN_A_ROW = 3
_LOOKED_BACK = 20
_FIRST_WAIT_S = 2.0
"""As often as health is asked: one burst of failures costs no more than that."""
_LONGEST_WAIT_S = 60.0
"""What is good again is found within a minute."""


class Breaker:
    """Opens after three failures in a row, or when half of the last 20 answers were failures.

    Then it waits, 2 s at first, and is half-open: a trial that succeeds closes it, one that fails opens it for twice
    as long. A success while it is open (of a request that was under way) closes nothing: the trial does.
    """

    __slots__ = ("_again_s", "_failed", "_in_a_row", "_open", "_recent", "_wait_s")

    def __init__(self) -> None:
        self._open = False
        self._again_s = 0.0
        self._wait_s = _FIRST_WAIT_S
        self._in_a_row = 0
        self._recent = 0
        """The last answers as bits, the newest lowest; 1 is a failure."""
        self._failed = 0

    def state(self, now_s: float) -> BreakerState:
        """What may be done with it now."""
        if not self._open:
            return "closed"
        return "half-open" if now_s >= self._again_s else "open"

    @property
    def is_open(self) -> bool:
        """Whether it is to be left out of what is chosen from."""
        return self._open

    def succeeded(self) -> None:
        """A good answer."""
        self._in_a_row = 0
        if self._recent:
            self._push(0)

    def failed(self, now_s: float) -> bool:
        """A failure; whether it opened the breaker."""
        self._in_a_row += 1
        self._push(1)
        if self._open or (self._in_a_row < _IN_A_ROW and 2 * self._failed < _LOOKED_BACK):
            return False
        self._open = True
        self._again_s = now_s + self._wait_s
        return True

    def tried(self, now_s: float, *, well: bool) -> bool:
        """How a trial ended; whether that closed the breaker. A trial of a closed one changes nothing."""
        if not self._open:
            return False
        if well:
            self._open = False
            self._wait_s = _FIRST_WAIT_S
            self._in_a_row = self._recent = self._failed = 0
            return True
        self._wait_s = min(2 * self._wait_s, _LONGEST_WAIT_S)
        self._again_s = now_s + self._wait_s
        return False

    def _push(self, bit: int) -> None:
        self._recent = (self._recent << 1 | bit) & ((1 << _LOOKED_BACK) - 1)
        self._failed = self._recent.bit_count()
