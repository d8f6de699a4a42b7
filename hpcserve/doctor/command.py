"""Run one command on this host to its end, within a time."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Ran", "run_command"]

_SHOWN = 400
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a command printed; `trouble` is why it did not end well, empty where it did."""

    output: str
    """Empty where it was not done in time."""
    trouble: str
    complaints: str = ""
    """What it wrote to stderr, without blanks around it."""
    missing: bool = False
    """Whether the trouble is that there is no such command."""
    late: bool = False
    """Whether the trouble is only that it was not done in time."""
    unfinished: str = ""
    """What it had printed when the time was up."""


def run_command(
    argv: Sequence[str],
    *,
    timeout_s: float,
    grace_s: float = 0.0,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> Ran:
    """Never raises for the command's failure. It and what it started never outlive the call.

    Where it takes too long, or Ctrl-C comes, it is told to end and has `grace_s` for that.
    """
    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if environment is None else dict(environment),
            cwd=directory,
            start_new_session=True,
        )
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        return Ran(output="", trouble=f"{argv[0]}: {error.strerror}", missing=missing)
    with process:
        try:
            printed, said = _texts(process.communicate(timeout=timeout_s))
        except subprocess.TimeoutExpired:
            printed, said = _end(process, grace_s)
            last = said.rpartition("\n")[2][-_SHOWN:]
            trouble = f"{argv[0]} did not end in {timeout_s:g} s{last and ': '}{last}"
            return Ran(output="", trouble=trouble, complaints=said, late=True, unfinished=printed)
        except BaseException:
            _end(process, grace_s)
            raise
    trouble = said[-_SHOWN:] or printed.strip()[-_SHOWN:] or f"exit code {process.returncode}"
    return Ran(output=printed, trouble=trouble if process.returncode else "", complaints=said)


def _end(process: "subprocess.Popen[bytes]", grace_s: float) -> tuple[str, str]:
    """What it printed and wrote to stderr, once it has ended.

    Only the command itself is told to end: srun hands that on to its step, which, were srun killed, Slurm would leave
    to its time limit.
    """
    process.terminate()
    end_s = time.monotonic() + grace_s
    while process.poll() is None and time.monotonic() < end_s:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it is read meanwhile: a full pipe would hold it up
            return _texts(process.communicate(timeout=_POLL_S))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return _texts(process.communicate())


def _texts(written: tuple[bytes, bytes]) -> tuple[str, str]:
    output, complaints = written
    return output.decode(errors="replace"), complaints.decode(errors="replace").strip()
