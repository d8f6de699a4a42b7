"""`Evidence`: all that was seen of one host, as plain values, so that every check is a function of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcserve.nouns import NodeType, Site
from hpcserve.site import hosts_of
from hpcserve.site.infiniband_text import AdapterPort

__all__ = [
    "Disk",
    "EngineSeen",
    "Evidence",
    "FabricSeen",
    "Gpu",
    "Interface",
    "PartitionTry",
    "RdmaPort",
    "SharedFiles",
    "SlurmSeen",
    "Wanted",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the site file says of the host that is looked at."""

    site: Site
    node: str
    tested: Mapping[str, str] = field(default_factory=dict)
    """Versions that hpcserve was tested with, by package; empty where there is nothing to compare with."""

    @property
    def kind(self) -> NodeType:
        """The node's type; KeyError for a host that the site does not name."""
        return hosts_of(self.site)[self.node]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface: addresses that others can be given, whether it is up, Mbit/s where the kernel knows them."""

    name: str
    addresses: tuple[str, ...]
    up: bool
    speed_mbit_per_s: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPort:
    """A port below /sys/class/infiniband."""

    seen: AdapterPort
    numa: int | None
    """None where the firmware does not tell."""
    trouble: str
    """Why its device file does not open; empty where it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU as nvidia-smi shows it; figures that it does not print are None."""

    index: int
    name: str
    memory_gib: float | None
    used_gib: float | None
    uncorrected_errors: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSeen:
    """What `nvidia-smi -q` says of the NVLink domain of one GPU."""

    state: str
    cluster_uuid: str
    clique: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A directory of the site: what became of looking at it, and of writing there where that is wanted."""

    called: str
    path: str
    trouble: str
    free_bytes: int
    free_files: int | None
    """None where the file system does not count them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFiles:
    """How the directory of jobs behaved between this node and the login node."""

    rename_trouble: str
    round_trip_s: float | None
    """From writing a file here to seeing the login node's answer; None where none came."""
    clock_ahead_s: float | None
    """This node's clock against the login node's, at the middle of that round trip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSeen:
    """What a probe inside an engine's runtime reported; `trouble` is why it could not."""

    runtime: str
    trouble: str = ""
    late: bool = False
    """Whether the trouble is only that it was not done in time."""
    versions: Mapping[str, str] = field(default_factory=dict)
    connectors: tuple[str, ...] = ()
    backend_trouble: str = ""
    """Why NIXL's backend did not come up."""
    registered: Mapping[str, str] = field(default_factory=dict)
    """By kind of memory (`DRAM`, `VRAM`): empty where 1 MiB of it was registered, else why not."""
    ucx_libraries: tuple[str, ...] = ()
    """Files of libucp that are mapped into the process."""
    ucx_resources: tuple[str, ...] = ()
    """Transports over devices that UCX may use, `tcp/eth0`, `rc_mlx5/mlx5_0:1`."""
    pid_namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything that was seen of one host."""

    environment: Mapping[str, str]
    hostname: str
    host_addresses: tuple[str, ...]
    """What the host's own name resolves to; empty where it does not."""
    locked_memory_bytes: int | None
    """RLIMIT_MEMLOCK, soft; None is unlimited."""
    open_files: int | None
    """RLIMIT_NOFILE, hard; None is unlimited."""
    shared_memory_free_bytes: int | None
    """Of /dev/shm; None where there is none."""
    interfaces: tuple[Interface, ...]
    interfaces_unseen: str
    """Why they could not be seen; empty where they were, even if there are none."""
    outgoing_ports: tuple[int, int] | None
    ports_tried: int
    ports_free: int
    rdma: tuple[RdmaPort, ...]
    slingshot: tuple[str, ...]
    kernel: str
    kernel_modules: frozenset[str]
    kernel_command_line: str
    iommu_groups: int
    """Groups of devices whose addresses the IOMMU translates, as far as the kernel says (not type `identity`)."""
    open_nvidia_driver: bool
    bridges_with_acs: tuple[str, ...] | None
    """PCI bridges that redirect traffic between peers; None where they cannot be read without root."""
    pid_namespace: str
    gpus: tuple[Gpu, ...]
    gpu_trouble: str
    """Why nvidia-smi could not be asked."""
    gpus_unseen: str
    """That nvidia-smi gave no answer in time, which says nothing of the GPUs."""
    nvlinks: frozenset[tuple[int, int]] | None
    """Pairs of GPUs, lower index first, that `nvidia-smi topo -m` shows joined by NVLink; None: it was not asked."""
    nvlink_fabric: tuple[FabricSeen, ...] | None
    """None where nvidia-smi gave no answer in time."""
    imex_channel: bool
    disks: tuple[Disk, ...]
    programs: frozenset[str]
    """Of the programs that this site needs, those that are on PATH."""
    engines: tuple[EngineSeen, ...] = ()
    shared: SharedFiles | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTry:
    """What `sbatch --test-only` said to one partition's job."""

    partition: str
    options: tuple[str, ...]
    refusal: str
    """Empty where it was accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSeen:
    """What Slurm's commands said on the login node."""

    missing: tuple[str, ...]
    """Commands that are not there."""
    configuration: Mapping[str, str]
    """`scontrol show config`."""
    config_trouble: str
    node_states: Mapping[str, str]
    """Each node's state in short, `idle`, `drain*`."""
    tries: tuple[PartitionTry, ...]
