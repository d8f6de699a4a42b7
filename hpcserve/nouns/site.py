"""`Site`: what an admin wrote about one cluster."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Duration, EnvName, Figure, HostList, Name, Noun, Subnet, Text

__all__ = [
    "MOST_GPUS_PER_NODE",
    "Gpu",
    "Network",
    "Networks",
    "Nic",
    "NicKind",
    "NodeGroup",
    "NodeType",
    "NvlinkIsland",
    "Partition",
    "Paths",
    "Rate",
    "Runtime",
    "RuntimeKind",
    "Site",
    "SlurmDialect",
    "Switch",
    "Transport",
]


MOST_GPUS_PER_NODE = 1024
"""Far above any node's, so that a slip of the keyboard is told and not enumerated."""


class Rate(Noun):
    """A one-way rate of one port or link: nominal GB/s (1e9 bytes/s) times an efficiency, with its source."""

    nominal_gb_per_s: Figure
    efficiency: Annotated[float, Field(ge=1e-9, le=1)]
    source: Text

    @property
    def gb_per_s(self) -> float:
        """Effective one-way GB/s."""
        return self.nominal_gb_per_s * self.efficiency


class Gpu(Noun):
    """The accelerators of one node type. `model: cpu` says that a slot is a share of the host's cores."""

    model: Text
    count: Annotated[int, Field(gt=0, le=MOST_GPUS_PER_NODE)]
    memory_gib: Figure


class NicKind(StrEnum):
    """What a NIC speaks."""

    INFINIBAND = "infiniband"
    ROCE = "roce"
    ETHERNET = "ethernet"
    SLINGSHOT = "slingshot"
    EFA = "efa"


class Nic(Noun):
    """One NIC port that may carry KV. `gpus`: the GPU indexes it is nearest to (every GPU must be near one NIC)."""

    name: Text
    """The name that UCX_NET_DEVICES takes: `mlx5_0:1`, `eth0`."""
    kind: NicKind
    rate: Rate
    numa: Annotated[int, Field(ge=0)] | None = None
    gpus: tuple[Annotated[int, Field(ge=0)], ...]


class NvlinkIsland(Noun):
    """GPUs of one node that reach one another by NVLink at `rate` (one-way, per pair)."""

    gpus: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=2)]
    rate: Rate


class NodeType(Noun):
    """One kind of node: its cores, GPUs, NICs and what joins them inside the node."""

    cores: Annotated[int, Field(gt=0, le=65536)]
    """At most 65536, for the same reason as GPUs."""
    memory_gib: Figure
    gpu: Gpu
    nics: Annotated[tuple[Nic, ...], Field(min_length=1)]
    nvlink: tuple[NvlinkIsland, ...] = ()
    host_path: Rate
    """One-way rate between two GPUs of the node that share no NVLink: PCIe or host memory."""


class NodeGroup(Noun):
    """Nodes of one type."""

    hosts: HostList
    type: Name


class Switch(Noun):
    """One switch: a leaf has `hosts`, an upper one `switches` (host-list syntax of names); exactly one of the two.

    `uplink` is the one-way rate of all links together from this switch to its parent; a root has none.
    """

    name: Name
    hosts: HostList | None = None
    switches: HostList | None = None
    uplink: Rate | None = None


class Network(Noun):
    """How a node's address on a network is found: the interface that carries it, or the subnet it lies in."""

    interface: Text | None = None
    subnet: Subnet | None = None


class Networks(Noun):
    """The control network (HTTP, agents) and the data network (KV)."""

    control: Network
    data: Network


class Partition(Noun):
    """A Slurm partition: its hosts, its longest job, whether an account must be named."""

    hosts: HostList
    max_time: Duration
    account_required: bool


class SlurmDialect(Noun):
    """How this Slurm is asked for things."""

    gpu_request: Literal["gres", "gpus-per-node", "none"]
    """`gres`: --gres=gpu:N; `gpus-per-node`: --gpus-per-node=N; `none`: the site schedules whole nodes only."""
    exclusive: bool
    """Ask for whole nodes."""
    switches_option: bool
    """topology/tree or block is on, so that `--switches` means something."""
    directives: tuple[Text, ...] = ()
    """Further `#SBATCH` options, verbatim, e.g. `--qos=gpu`."""


class RuntimeKind(StrEnum):
    """How a shell enters an environment."""

    VENV = "venv"
    MODULES = "modules"
    APPTAINER = "apptainer"
    NONE = "none"


class Runtime(Noun):
    """One environment: `path` is the venv or image; `modules` are loaded first; `env` is set last."""

    kind: RuntimeKind
    path: Text | None = None
    modules: tuple[Text, ...] = ()
    env: dict[EnvName, str] = Field(default_factory=dict)


class Transport(Noun):
    """UCX settings of the data network, by variable name without `UCX_NET_DEVICES` (that follows from placement)."""

    ucx: dict[EnvName, Text]


class Paths(Noun):
    """Directories that every node sees under the same name; `~` is the user's home."""

    jobs: Text
    models: Text
    cache: Text


class Site(Noun):
    """One cluster. No field that a machine decides has a default."""

    schema_: Annotated[Literal["hpcserve.site/1"], Field(alias="schema")]
    name: Name
    description: Text
    node_types: Annotated[dict[Name, NodeType], Field(min_length=1)]
    nodes: Annotated[tuple[NodeGroup, ...], Field(min_length=1)]
    partitions: dict[Name, Partition]
    switches: Annotated[tuple[Switch, ...], Field(min_length=1)]
    networks: Networks
    slurm: SlurmDialect | None
    """None where there is no Slurm (the `local` launcher)."""
    transport: Transport
    runtimes: dict[Name, Runtime]
    """`hpcserve` (how the agents' Python is entered) and one per engine (`vllm`)."""
    paths: Paths
