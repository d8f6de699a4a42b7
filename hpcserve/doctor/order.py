"""`Order`: what a look of the doctor is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcserve.nouns import JobFile, Site

__all__ = ["Order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be looked at, and how long it may take."""

    site: Site
    site_text: str
    nodes: tuple[str, ...]
    """Compute nodes, empty for all of the site's partitions."""
    account: str | None
    directory: Path
    """Made for this look, and removed after it: below the site's jobs, which all nodes share."""
    runtimes: tuple[JobFile, ...]
    """`runtimes/NAME.sh`."""
    tested: Mapping[str, str]
    wait_s: float
    """For nodes to become free, and for each of them to answer once it is."""
    environment: Mapping[str, str]
    """What Slurm's commands are started with."""

    @property
    def answers_within_s(self) -> float:
        """How long after its start the whole look at the nodes is ended."""
        return 2 * self.wait_s

    def command(self, *more: str) -> tuple[str, ...]:
        """What is started on a node: the node's own part of the look, in the runtime `hpcserve`."""
        tested = [f"--tested={name}={version}" for name, version in self.tested.items()]
        program = ("python", "-m", "hpcserve.doctor.node", "--directory", str(self.directory))
        return ("bash", str(self.directory / "runtimes/hpcserve.sh"), *program, *tested, *more)
