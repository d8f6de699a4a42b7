"""How Slurm is asked on one cluster: `Partition`, `SlurmDialect`."""

import re
from typing import Literal

from hpcserve.nouns.base import Duration, HostList, Name, Noun, PositiveInt, SlurmVersion, Text

__all__ = ["Partition", "SlurmDialect"]

_SEGMENTS_SINCE = (24, 5)
_CONSTRAINT = re.compile(r"""(?:--constraint[=\s]|-C)\s*["']?([^\s"']+)""")


class Partition(Noun):
    """A Slurm partition: its hosts, its longest job, whether an account must be named."""

    hosts: HostList
    """Its nodes; a node may be in several partitions."""
    max_time: Duration
    """Its longest job; a service that asks for more is refused before sbatch is."""
    account_required: bool
    """Whether it takes no job without an account."""
    max_nodes: PositiveInt | None = None
    """The most nodes of one job; null where there is no limit."""
    exclusive: bool | None = None
    """Whether jobs ask for whole nodes here; null where `slurm.exclusive` holds."""


class SlurmDialect(Noun):
    """How this Slurm is asked for things."""

    gpu_request: Literal["gres", "gpus-per-node", "none"]
    """`--gres=gpu:N`, `--gpus-per-node=N`, or nothing where only whole nodes are given out."""
    exclusive: bool
    """Ask for whole nodes (`--exclusive --mem=0`)."""
    switches_option: bool
    """Whether `--switches` means something here (topology/tree or block)."""
    version: SlurmVersion | None = None
    """The number that `sinfo --version` prints, in quotes; options that came with a later Slurm, or with one that is
    not known, are not asked for. `hpcserve doctor` tells where the cluster has another."""
    topology: Literal["tree", "block", "flat"] | None = None
    """The topology plugin, as `scontrol show config` prints it under TopologyPlugin."""
    block_sizes: tuple[PositiveInt, ...] = ()
    """BlockSizes of topology/block: nodes of a base block, then of each aggregate."""
    hetjobs: bool | None = None
    """Whether it takes jobs of several components (`#SBATCH hetjob`), which services over several partitions are; false
    where the site forbids them or does not schedule by sched/backfill; null: not known, sbatch is asked."""
    mpi: Name | None = None
    """What `srun --mpi=` takes for Open MPI, `pmix`; `hpcserve site measure` needs it."""
    directives: tuple[Text, ...] = ()
    """Further `#SBATCH` options, word for word, such as `--qos=gpu`; they come last."""

    @property
    def has_segments(self) -> bool:
        """Whether `--segment` and `--exclusive=topo` mean something: topology/block of Slurm 24.05 or later.

        Source: both came with 24.05, for topology/block (its release notes). A version that is not known has neither.
        """
        if self.topology != "block" or self.version is None:
            return False
        year, month, *_ = self.version.split(".")
        return (int(year), int(month)) >= _SEGMENTS_SINCE

    @property
    def constraint(self) -> str | None:
        """The features that every job asks for by `directives`; the last one counts."""
        found = [match[1] for match in map(_CONSTRAINT.match, self.directives) if match is not None]
        return found[-1] if found else None
