"""Running programs, and telling whether a process still runs: by pid and start time, never by name."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm.onebox.errors import CommandError

# Daemons and `tc` live there; an ordinary user's PATH does not name these folders.
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"


def program(name: str) -> str | None:
    """The path of a program, looked for in PATH and the system's own folders; None where it is not."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_FOLDERS}")


def run(
    arguments: Sequence[str],
    *,
    text_in: str = "",
    inside: Callable[[], None] | None = None,
    environment: Mapping[str, str] | None = None,
    within_s: float = 60.0,
) -> str:
    """What a short program prints. It gets no signal from the terminal: half-done steps are worse.

    `inside` runs in the new process before the program (to enter a namespace). Raises CommandError
    when the program is missing, fails, or takes longer than `within_s`.
    """
    path = program(arguments[0])
    if path is None:
        raise CommandError(arguments, "could not be run", f"{arguments[0]} is not installed")
    try:
        done = subprocess.run(
            [path, *arguments[1:]],
            input=text_in,
            capture_output=True,
            text=True,
            errors="replace",
            env=None if environment is None else dict(environment),
            preexec_fn=inside,
            start_new_session=True,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise CommandError(arguments, f"did not end within {within_s:.0f} s", "") from late
    except subprocess.SubprocessError as failure:
        raise CommandError(arguments, "could not be run", str(failure)) from failure
    if done.returncode != 0:
        raise CommandError(arguments, f"ended with {done.returncode}", done.stderr + done.stdout)
    return done.stdout


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process, told apart from a later one with the same pid by its start time (clock ticks)."""

    pid: int
    start_time: int

    def alive(self) -> bool:
        """Whether it still runs; a zombie does not."""
        return _start_time(self.pid) == self.start_time

    def send(self, number: signal.Signals) -> None:
        """Signal it, unless it is gone."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


def _start_time(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5): the state is field 3, the first after the name; the start time is field 22.
    return None if fields[0] in "ZX" else int(fields[19])


def process(pid: int) -> Process | None:
    """The process that has this pid now; None where there is none, or a zombie."""
    start_time = _start_time(pid)
    return None if start_time is None else Process(pid=pid, start_time=start_time)


def all_processes() -> list[Process]:
    """Everything that runs on this machine, as far as /proc shows it."""
    found = (process(int(entry.name)) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [one for one in found if one is not None]


def end(processes: Iterable[Process], *, grace_s: float) -> None:
    """Ask these processes to end, and after `grace_s` end those that did not."""
    left = [one for one in processes if one.alive()]
    for one in left:
        one.send(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (left := [one for one in left if one.alive()]) and time.monotonic() < deadline:
        time.sleep(0.02)
    for one in left:
        one.send(signal.SIGKILL)
