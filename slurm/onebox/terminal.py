"""What the user reads: results on standard output, complaints on standard error."""

from __future__ import annotations

import sys


def say(words: str) -> None:
    """Print a line now, also into a pipe."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def complain(words: str) -> None:
    """Print an error, with the program's name before it."""
    sys.stderr.write(f"slurm/cluster: {words}\n")
