"""Running one of Slurm's commands."""

import os
import subprocess
from dataclasses import dataclass

from hpcserve.scheduler.environment import clean_environment

__all__ = ["Answer", "ask"]

_LONGEST_S = 60.0
"""Longer than any command takes that reaches its controller; slurm.conf(5): MessageTimeout is 10 s."""

_NO_SUCH_COMMAND = 127  # as a shell says it


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command printed and how it ended; 127 where there is no such command."""

    code: int
    output: str
    complaint: str


def ask(*argv: str) -> Answer:
    """Run one command to its end, with an environment that no outer job leaks into; it never raises for its failure.

    In a session of its own: Ctrl-C reaches the caller, who knows what a command that was cut would leave.
    """
    environment = clean_environment(os.environ) | {"SLURM_TIME_FORMAT": "standard"}
    try:
        done = subprocess.run(
            argv,
            env=environment,
            capture_output=True,
            check=False,
            timeout=_LONGEST_S,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    except FileNotFoundError:
        return Answer(code=_NO_SUCH_COMMAND, output="", complaint=f"{argv[0]}: command not found")
    except subprocess.TimeoutExpired:
        return Answer(code=1, output="", complaint=f"{argv[0]}: no answer after {_LONGEST_S:.0f} s")
    return Answer(
        code=done.returncode,
        output=done.stdout.decode(errors="replace"),
        complaint=done.stderr.decode(errors="replace").strip(),
    )
