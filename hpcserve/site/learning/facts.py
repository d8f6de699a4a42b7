"""`Facts`: what the texts of a cluster's tools say of it together. None stands for what no text said."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = [
    "BlockFacts",
    "Facts",
    "KnownNode",
    "KnownPartition",
    "NicFacts",
    "ProbeFacts",
    "SlurmFacts",
    "SwitchFacts",
    "UplinkFacts",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownNode:
    """One node as Slurm knows it; all but the name is unknown for one that only a fabric's tool named."""

    host: str
    cores: int | None = None
    """What `--cpus-per-task` counts: CPUTot."""
    memory_mib: int | None = None
    gpus: int | None = None
    """0 where Slurm knows the node and no GPU of it."""
    gres_type: str | None = None
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NicFacts:
    """One port that can carry KV, as tools on its node told it."""

    name: str
    kind: str
    """A `NicKind`."""
    gbit_per_s: float | None
    source: str
    numa: int | None = None
    gpus: tuple[int, ...] | None = None
    """Indexes of the GPUs that it is nearest to."""
    guid: str | None = None
    rail: int | None = None
    slot_gb_per_s: float | None = None
    """One way, of its PCIe slot as it runs."""

    @property
    def device(self) -> str:
        """The RDMA device, `mlx5_0` of `mlx5_0:1`."""
        return self.name.partition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFacts:
    """What tools that ran on one node said of it."""

    host: str
    gpu_model: str | None = None
    gpu_count: int | None = None
    gpu_memory_mib: int | None = None
    gpu_numa: tuple[int, ...] | None = None
    gpu_cpus: tuple[str, ...] | None = None
    islands: tuple[tuple[int, ...], ...] = ()
    """GPUs joined by NVLink, islands of one GPU left out."""
    domain: tuple[str, int] | None = None
    """Cluster UUID and clique of its NVLink domain across nodes."""
    pcie_gb_per_s: float | None = None
    """One way, of the slots of all GPUs, as built."""
    nics: tuple[NicFacts, ...] = ()
    """Those that carry KV by all that is known."""
    offered: tuple[NicFacts, ...] = ()
    """Those that carry KV only where the admin says so: RoCE and plain Ethernet; with `gpus` empty where not known."""
    devices: tuple[str, ...] = ()
    """Names of NICs that nvidia-smi knows, of whose ports nothing was told."""
    interfaces: tuple[str, ...] = ()
    """Interfaces that are up, with their addresses, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPartition:
    """One partition of Slurm's."""

    hosts: tuple[str, ...]
    max_time: str | None
    """`[days-]hours:minutes:seconds`; None where there is no limit."""
    account_required: bool | None
    max_nodes: int | None
    exclusive: bool | None
    """True where jobs get whole nodes whatever they ask for; None where it depends on the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UplinkFacts:
    """All links of a switch to the one above, one way; None where a link's rate is not known."""

    gbit_per_s: float | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchFacts:
    """One switch of the tree, or several that stand for one in it; a leaf has hosts, an upper one switches."""

    name: str
    hosts: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    uplink: UplinkFacts | None = None
    rail: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFacts:
    """One base block of topology/block."""

    name: str
    hosts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmFacts:
    """How this Slurm is set up."""

    cluster: str | None = None
    version: str | None = None
    topology: str | None = None
    """`tree`, `block` or `flat`."""
    block_sizes: tuple[int, ...] = ()
    gpu_gres: bool | None = None
    """Whether GPUs are asked for; False where Slurm knows no GPU."""
    whole_nodes: bool | None = None
    """True where Slurm gives out nothing but whole nodes."""
    mpi: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All of it, with what the texts disagree on and what was left out, in words."""

    nodes: Mapping[str, KnownNode] = field(default_factory=dict)
    probes: Mapping[str, ProbeFacts] = field(default_factory=dict)
    partitions: Mapping[str, KnownPartition] | None = None
    """None where no text lists partitions."""
    switches: tuple[SwitchFacts, ...] | None = None
    switch_source: str = "the fabric"
    blocks: tuple[BlockFacts, ...] | None = None
    slurm: SlurmFacts | None = None
    disagreements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
