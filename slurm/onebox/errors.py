"""Every error that a user of `slurm/cluster` can meet, each with its exit code."""

from __future__ import annotations

import signal
from collections.abc import Sequence


class ClusterError(Exception):
    """The cluster could not do what was asked; the message says what to do."""

    exit_code = 1


class UsageError(ClusterError):
    """The arguments do not describe a cluster that can be built."""

    exit_code = 2


class NotUpError(ClusterError):
    """The cluster is not up."""

    exit_code = 3


class RequirementsError(ClusterError):
    """This machine lacks something that the cluster needs."""

    exit_code = 4


class StoppedError(ClusterError):
    """A signal asked for the end; `exit_code` is the shell's 128 + signal number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class CommandError(ClusterError):
    """A program that the cluster runs failed.

    `arguments` is what was run, `output` what it said.
    """

    def __init__(self, arguments: Sequence[str], outcome: str, output: str) -> None:
        said = output.strip() or "it said nothing"
        super().__init__(f"`{' '.join(arguments)}` {outcome}: {said}")
        self.arguments = tuple(arguments)
        self.output = output
