"""Which ports of a node may carry KV, in the words of UCX_NET_DEVICES."""

from collections.abc import Iterable, Sequence

from hpcserve.errors import PlacementError
from hpcserve.nouns import NicKind, NodeType, Noun

__all__ = ["PortState", "kv_net_devices", "nic_kind", "ucx_net_devices"]


class PortState(Noun):
    """One port of an RDMA device as ibstat shows it."""

    device: str
    port: int
    state: str
    """`Active`, `Down`, `Initializing`, ..."""
    physical: str
    """`LinkUp`, `Polling`, `Disabled`, ..."""
    link_layer: str
    """`InfiniBand` or `Ethernet`."""


def kv_net_devices(ports: Iterable[PortState], *, roce: bool) -> tuple[str, ...]:
    """UCX names (`mlx5_0:1`) of the ports that can carry KV: up, active, InfiniBand; Ethernet only on a RoCE site."""
    wanted = {"InfiniBand", "Ethernet"} if roce else {"InfiniBand"}
    return tuple(
        f"{port.device}:{port.port}"
        for port in ports
        if port.state == "Active" and port.physical == "LinkUp" and port.link_layer in wanted
    )


def ucx_net_devices(nics: Sequence[str], node_type: NodeType, *, worker: str) -> str:
    """UCX_NET_DEVICES of a worker with these NICs; raises PlacementError where they are not one kind of known NIC."""
    if nic_kind(nics, node_type, worker=worker) == NicKind.EFA:
        raise PlacementError(
            f"worker {worker} was given EFA NICs, which UCX does not drive",
            remedy="set `transport.backend: libfabric` in the site file",
        )
    return ",".join(nics)


def nic_kind(nics: Sequence[str], node_type: NodeType, *, worker: str) -> NicKind:
    """What the NICs of a worker speak; raises PlacementError where they are not one kind of known NIC."""
    known = {nic.name: nic for nic in node_type.nics}
    unknown = [name for name in nics if name not in known]
    if unknown or not nics:
        found = f"NIC {unknown[0]}" if unknown else "no NIC"
        raise PlacementError(
            f"worker {worker} was given {found}", remedy=f"NICs of its node type are {', '.join(known)}"
        )
    kinds = {known[name].kind for name in nics}
    if len(kinds) > 1:
        named = ", ".join(sorted(kind.value for kind in kinds))
        raise PlacementError(
            f"worker {worker} was given NICs of different kinds ({named})",
            remedy="KV takes one kind: list only the fabric's NICs in the site file",
        )
    return kinds.pop()
