"""Ends long work at its next step when a signal asks for it, never in the middle of a step."""

from __future__ import annotations

import signal
import time
from types import FrameType, TracebackType
from typing import Self

from slurm.onebox.errors import StoppedError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """While entered, SIGINT, SIGTERM and SIGHUP are noted instead of obeyed; ignored ones (nohup) stay ignored.

    Work calls `check` between its steps; clearing up does not, and so is never cut short.
    """

    def __init__(self) -> None:
        self._number: int | None = None

    def __enter__(self) -> Self:
        heeded = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        self._before = {number: signal.signal(number, self._note) for number in heeded}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._number = number

    def check(self) -> None:
        """Raise StoppedError if a signal came since the start."""
        if self._number is not None:
            raise StoppedError(self._number)

    def sleep(self, seconds: float) -> None:
        """Sleep, then check."""
        time.sleep(seconds)
        self.check()
