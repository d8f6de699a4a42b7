"""The end of a log of the job directory, as a person is shown it."""

import os
from pathlib import Path

__all__ = ["log_tail", "printable"]

_LINES = 20
_FIRST_LOOK_BYTES = 16 * 1024
_LONGEST_LINE_BYTES = 64 * 1024
"""A line without an end (a progress bar) must not make a tail of gigabytes."""


def log_tail(path: Path, lines: int = _LINES, *, from_bytes: int = 0, blank: bool = False) -> tuple[str, ...]:
    """The last lines of a log behind `from_bytes`, without control characters; none where it cannot be read.

    `blank`: whether empty lines count. Engines write what they were sent: shown as it is, a prompt could steer the
    terminal of whoever looks.
    """
    window_bytes = _FIRST_LOOK_BYTES
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            while True:
                start = file.seek(max(from_bytes, size - window_bytes))
                text = file.read(size - start).decode(errors="replace")
                found = [line for line in map(printable, text.splitlines()) if blank or line.strip()]
                # the first of them may be cut
                if len(found) > lines or start <= from_bytes or window_bytes >= _LONGEST_LINE_BYTES * (lines + 1):
                    return tuple(found[-lines:]) if lines else ()
                window_bytes *= 4
    except OSError:
        return ()


def printable(line: str) -> str:
    """A line without what a terminal would obey."""
    return "".join(mark for mark in line if mark.isprintable() or mark == "\t")
