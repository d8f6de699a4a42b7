"""Nodes and partitions as Slurm describes them, whichever text says it."""

from dataclasses import dataclass

from hpcserve.site.slurm_text.gres import Gres

__all__ = ["MachineList", "NodeFacts", "PartitionFacts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Nodes that a text describes alike; None stands for what it does not say."""

    hosts: tuple[str, ...]
    gres: Gres | None = None
    memory_mib: int | None = None
    """Slurm calls it MB and means MiB (slurm.conf(5), RealMemory)."""
    cpus: int | None = None
    """Logical CPUs, hardware threads counted."""
    sockets: int | None = None
    cores_per_socket: int | None = None
    threads_per_core: int | None = None
    features: tuple[str, ...] = ()
    state: str | None = None
    usable: bool | None = None
    """Whether a job could start there now; None where that depends, or where no state is said."""
    partitions: tuple[str, ...] = ()
    address: str | None = None

    @property
    def cores(self) -> int | None:
        """Cores of one node, from sockets or from CPUs; None where neither says."""
        if self.sockets is not None and self.cores_per_socket is not None:
            return self.sockets * self.cores_per_socket
        if self.cpus is not None and self.threads_per_core:
            return self.cpus // self.threads_per_core
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """One partition; None stands for what the text does not say."""

    name: str
    hosts: tuple[str, ...]
    default: bool = False
    exclusive: bool | None = None
    """Whether each job gets whole nodes, whatever it asks for."""
    max_time: str | None = None
    """As Slurm writes it: `1-00:00:00`, `UNLIMITED`."""
    max_nodes: int | None = None
    """The most nodes of a job; None where there is no limit too."""
    topology: str | None = None
    """Which topology of topology.yaml it has."""
    up: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineList:
    """What one text says of nodes and partitions."""

    nodes: tuple[NodeFacts, ...] = ()
    partitions: tuple[PartitionFacts, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    """Settings of the cluster as a whole, by the key that Slurm uses."""
    includes: tuple[str, ...] = ()
    """Files that the text includes; what they say is not here."""
    warnings: tuple[str, ...] = ()

    @property
    def default_partition(self) -> str | None:
        """The partition of jobs that name none; Slurm takes the last that says so."""
        return next((one.name for one in reversed(self.partitions) if one.default), None)

    def setting(self, key: str) -> str | None:
        """A setting of the cluster by its key in any case; None where it is not said."""
        return next((value for name, value in self.settings if name.lower() == key.lower()), None)
