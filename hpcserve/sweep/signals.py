"""SIGTERM and SIGHUP as Ctrl-C: the block they end can clean up."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["exit_on_signals", "ignore_further_signals"]

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_BY_SIGNAL = 128  # plus its number: the exit code that shells give (POSIX, 2.8.2)


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """While the block runs, the first SIGTERM or SIGHUP raises SystemExit(128 + its number); later ones do nothing.

    One that was ignored before stays so: nohup(1). Outside the main thread, which alone may set handlers, all stays.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, _exit)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_further_signals() -> None:
    """From now on SIGTERM and SIGHUP do nothing: timeout(1) sends two, and the second must not stop the cleaning up."""
    if threading.current_thread() is threading.main_thread():
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)


def _exit(number: int, _frame: FrameType | None) -> None:
    ignore_further_signals()
    raise SystemExit(_BY_SIGNAL + number)
