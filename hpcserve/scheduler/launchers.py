"""Which launcher is meant by a name."""

from typing import Literal

from hpcserve.scheduler.launcher import Launcher
from hpcserve.scheduler.local import LocalLauncher
from hpcserve.scheduler.slurm import SlurmLauncher

__all__ = ["launcher_for"]


def launcher_for(name: Literal["slurm", "local"]) -> Launcher:
    """The launcher of that name."""
    return SlurmLauncher() if name == "slurm" else LocalLauncher()
