"""Run a program and hand over its output line by line while it runs.

In: argv. Out: exit status and the last lines. May touch: processes. The program never outlives the call.
"""

import os
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

__all__ = ["Finished", "run_program"]

_LAST_LINES = 30  # enough to hold pip's whole final complaint, short enough for a terminal
_GRACE_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a program ended: its exit status and the last lines of stdout and stderr together."""

    status: int
    last_lines: tuple[str, ...]


def run_program(
    argv: Sequence[str],
    *,
    on_line: Callable[[str], None] = lambda _line: None,
    on_pause: Callable[[], None] = lambda: None,
    pause_s: float = 0.5,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run `argv` to its end; `on_line` gets each line of output, `on_pause` is called after every `pause_s` of silence.

    `environment` is added to this process's own. An exception out of a callback, or Ctrl-C, ends the program first.
    Raises OSError where the program cannot be started.
    """
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
        close_fds=False,  # what is inheritable is so on purpose: the lock of `exclusive`
        text=True,
        errors="replace",
    ) as process:
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        reader = threading.Thread(target=_pass_on, args=(process.stdout, lines), daemon=True)
        reader.start()
        try:
            while (line := _next_line(lines, pause_s, on_pause)) is not None:
                last_lines.append(line)
                on_line(line)
        except BaseException:
            _end(process)
            raise
        finally:
            reader.join()
    return Finished(status=process.returncode, last_lines=tuple(last_lines))


def _next_line(lines: "queue.SimpleQueue[str | None]", pause_s: float, on_pause: Callable[[], None]) -> str | None:
    """The next line without its newline, None at the end of output."""
    while True:
        try:
            return lines.get(timeout=pause_s)
        except queue.Empty:
            on_pause()


def _pass_on(stream: IO[str] | None, lines: "queue.SimpleQueue[str | None]") -> None:
    for line in stream or ():
        lines.put(line.rstrip("\n"))
    lines.put(None)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
