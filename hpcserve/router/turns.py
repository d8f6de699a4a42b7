"""Since when what is read now may have been there: a router that stood still reads late what came in time.

A process that is stopped, or swapped out, or kept by one long computation does not notice it; its clock runs on.
"""

__all__ = ["Turns"]

_STILL_S = 1.0
"""From so long a gap on it counts; the router looks at its clock four times a second. A lease has many seconds."""


class Turns:
    """Remembers when the event loop was seen to run."""

    __slots__ = ("_before_s", "_last_s")

    def __init__(self) -> None:
        self._before_s = self._last_s = float("inf")

    def seen(self, now_s: float) -> None:
        """The loop runs. To be called several times a second; never called, no gap is known."""
        # The last time but one, as what lay there during a gap may be read some turns after it.
        self._before_s, self._last_s = self._last_s, now_s

    def there_since_s(self, now_s: float) -> float:
        """The earliest time at which what is read at `now_s` may have come; `now_s` itself where no gap was seen."""
        before_s = self._before_s
        return before_s if now_s - before_s > _STILL_S else now_s
