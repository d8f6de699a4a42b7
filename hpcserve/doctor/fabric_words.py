"""What several checks say of a node's fabric in the same words."""

from hpcserve.doctor.evidence import Wanted
from hpcserve.nouns import NicKind

__all__ = ["RDMA_KINDS", "TCP_INSTEAD", "carries_rdma", "has_gpus", "may_use_rdma", "port_rate"]

RDMA_KINDS = frozenset({NicKind.INFINIBAND, NicKind.ROCE})
"""Kinds of NIC that UCX drives by verbs and that are found below /sys/class/infiniband."""

TCP_INSTEAD = "KV goes over TCP, without an error and at a few per cent to half of"

_CPU_MODEL = "cpu"
_RDMA_WORDS = ("rc", "dc", "ud", "ib", "all")
"""UCX_TLS: names and aliases under which UCX uses an RDMA device (openucx.readthedocs.io, FAQ: UCX_TLS)."""


def carries_rdma(wanted: Wanted) -> bool:
    """Whether KV of this node is to go over verbs."""
    return any(nic.kind in RDMA_KINDS for nic in wanted.kind.nics)


def has_gpus(wanted: Wanted) -> bool:
    """Whether the node's slots are GPUs and not shares of its cores."""
    return wanted.kind.gpu.model != _CPU_MODEL


def port_rate(wanted: Wanted, name: str | None = None) -> str:
    """One-way GB/s of a port of the node, the named one or the first: `48.5 GB/s a port`."""
    for nic in wanted.kind.nics:
        if name in {None, nic.name}:
            try:
                return f"{nic.rate.gb_per_s:.3g} GB/s a port"
            except ValueError:  # the site says that nobody knows
                break
    return "what the port gives"


def may_use_rdma(transports: str) -> bool:
    """Whether a value of UCX_TLS leaves a transport over RDMA: a list of names, or after `^` a list of what not."""
    names = [name.strip().lstrip("\\") for name in transports.lstrip("^").split(",")]
    if transports.startswith("^"):
        return not {"ib", "all"} & set(names)
    return any(name.startswith(_RDMA_WORDS) for name in names)
