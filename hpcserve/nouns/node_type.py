"""`NodeType`: what one kind of node has, and what joins it inside."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from hpcserve.nouns.base import CpuList, Figure, Name, Noun, Text
from hpcserve.nouns.rate import Rate

__all__ = ["MOST_GPUS_PER_NODE", "Gpu", "LocalDisk", "Nic", "NicKind", "NodeType", "NvlinkIsland"]


MOST_GPUS_PER_NODE = 1024
"""Far above any node's, so that a slip of the keyboard is told and not enumerated."""


class Gpu(Noun):
    """The accelerators of one node type. `model: cpu` says that a slot is a share of the host's cores."""

    model: Text
    """Model; `cpu` says that a slot is a share of the node's cores."""
    count: Annotated[int, Field(gt=0, le=MOST_GPUS_PER_NODE)]
    """GPUs of a node."""
    memory_gib: Figure
    """Memory of one GPU; a model that does not fit is refused."""
    gres: Name | None = None
    """The type that Slurm's GRES has for them, `h100` of `gpu:h100:8`; null where GRES names no type."""
    numa: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """For each GPU the NUMA node whose cores are nearest to it."""
    cpus: tuple[CpuList, ...] | None = None
    """For each GPU the logical CPUs nearest to it."""


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
    """The name that UCX takes: `mlx5_0:1` (device and port), `eth0`."""
    kind: NicKind
    """What it speaks. A worker's NICs are of one kind."""
    rate: Rate
    """One-way rate of the port."""
    slot: Rate | None = None
    """One-way rate of its PCIe slot, where that may be less than the port's: PCIe 4.0 x16 is less than NDR."""
    numa: Annotated[int, Field(ge=0)] | None = None
    """NUMA node that it is attached to; a GPU of another NUMA node reaches it through `host_path`."""
    rail: Annotated[int, Field(ge=0)] | None = None
    """The rail whose leaf switch it is plugged into, where each node is plugged into one leaf for each rail."""
    gpus: tuple[Annotated[int, Field(ge=0)], ...]
    """GPUs that it is nearest to, counted from 0; every GPU is near one NIC at least."""


class NvlinkIsland(Noun):
    """GPUs of one node that reach one another by NVLink at `rate` (one-way, per pair)."""

    gpus: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=2)]
    """The GPUs of one island; each GPU is in one at most."""
    rate: Rate
    """One-way rate between two of them; data sheets give the sum of both ways, twice that."""


class LocalDisk(Noun):
    """A disk of each node: where it is mounted and how much it holds."""

    path: Text
    """Where it is mounted."""
    gib: Figure
    """How much it holds."""


class NodeType(Noun):
    """One kind of node: its cores, GPUs, NICs and what joins them inside the node."""

    cores: Annotated[int, Field(gt=0, le=65536)]
    """CPU cores as Slurm counts them."""
    memory_gib: Figure
    """Memory of the host."""
    gpu: Gpu
    """Its accelerators, all of one model."""
    nics: Annotated[tuple[Nic, ...], Field(min_length=1)]
    """NIC ports that may carry KV; list no others."""
    nvlink: tuple[NvlinkIsland, ...] = ()
    """Groups of GPUs of one node that reach one another by NVLink."""
    tensor_parallel_across_islands: bool = False
    """Whether the ranks of one worker may be spread over several of these groups, their NVLink given up for the host's
    path; a worker's ranks stay in one group otherwise."""
    host_path: Rate
    """One-way rate between two GPUs of a node without NVLink, or to a NIC of another NUMA node: PCIe or host memory."""
    local_disk: LocalDisk | None = None
    """A disk of its own."""
