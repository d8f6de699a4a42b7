"""`Fabric`: nodes under a forest of switches, and the path between two of their GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hpcserve.errors import NotFoundError, PlacementError
from hpcserve.nouns import Nic, NodeType

__all__ = ["Fabric", "FabricPath", "GpuAt", "Link", "PathDistance", "SwitchAt"]

PathDistance = Literal["same-node", "same-leaf", "across-leaves"]


@dataclass(frozen=True, slots=True, order=True)
class GpuAt:
    """One GPU: its node and its index there."""

    node: str
    index: int


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of one link that paths may share: its name, one-way GB/s, and where that figure comes from."""

    name: str
    gb_per_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricPath:
    """What KV passes from one GPU to another. `gb_per_s` is one-way, of the slowest link, alone on it."""

    hops: tuple[str, ...]
    gb_per_s: float
    distance: PathDistance
    source: str
    """Where the rate of the slowest link comes from."""
    links: tuple[Link, ...]
    """In order; two paths that share a link share its rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchAt:
    """One switch: its parent, and the rate of its links to it in GB/s; a root has neither."""

    name: str
    parent: str | None
    uplink_gb_per_s: float
    source: str


class Fabric:
    """Paths between the GPUs of one site. Looking one up takes time in the depth of the switches, not their number."""

    def __init__(
        self, *, node_types: Mapping[str, NodeType], leaf_of: Mapping[str, str], switches: Mapping[str, SwitchAt]
    ) -> None:
        self._node_types = node_types
        self._leaf_of = leaf_of
        self._switches = switches
        self._above = {leaf: self._chain(leaf) for leaf in set(leaf_of.values())}
        self._nics = {id(kind): _nearest_nics(kind) for kind in node_types.values()}

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node, in the site's order."""
        return tuple(self._node_types)

    def node_type(self, node: str) -> NodeType:
        """The type of a node; raises NotFoundError for a node that the site does not have."""
        try:
            return self._node_types[node]
        except KeyError:
            raise NotFoundError(
                f"no node `{node}` in this site", remedy="add it to the site's `nodes` and to its leaf switch"
            ) from None

    def leaf_of(self, node: str) -> str:
        """The leaf switch of a node; raises NotFoundError for a node that the site does not have."""
        self.node_type(node)
        return self._leaf_of[node]

    def switches_above(self, node: str) -> tuple[str, ...]:
        """The node's leaf switch, the switch above it, and so on to the root."""
        return self._above[self.leaf_of(node)]

    def switch(self, name: str) -> SwitchAt:
        """The switch of that name; KeyError where there is none."""
        return self._switches[name]

    def nic(self, gpu: GpuAt) -> Nic:
        """The NIC that carries a GPU's KV: of those that it is nearest to, the fastest, then the first."""
        nics = self._nics[id(self.node_type(gpu.node))]
        try:
            return nics[gpu.index]
        except KeyError:
            raise NotFoundError(
                f"no GPU {gpu.index} on node `{gpu.node}`", remedy="see the site's `gpu.count`"
            ) from None

    def distance(self, a: str, b: str) -> PathDistance:
        """How far two nodes are apart."""
        if a == b:
            return "same-node"
        return "same-leaf" if self.leaf_of(a) == self.leaf_of(b) else "across-leaves"

    def path(self, a: GpuAt, b: GpuAt) -> FabricPath:
        """The path from one GPU to another, one way.

        Inside a node NVLink where both are in one island, else the host; between nodes the NIC nearest to each and the
        switches up to the lowest common one. Raises PlacementError where no switch joins the two nodes, ValueError for
        a GPU and itself.
        """
        if a == b:
            raise ValueError(f"GPU {a.index} of {a.node} and itself: no path is needed")
        if a.node == b.node:
            return self._inside(a, b)
        leave, enter = self.nic(a), self.nic(b)
        up, down, switches = self._between(a.node, b.node)
        links = (
            Link(f"{a.node}.{leave.name} out", leave.rate.gb_per_s, leave.rate.source),
            *(Link(f"{switch.name} up", switch.uplink_gb_per_s, switch.source) for switch in up),
            *(Link(f"{switch.name} down", switch.uplink_gb_per_s, switch.source) for switch in down),
            Link(f"{b.node}.{enter.name} in", enter.rate.gb_per_s, enter.rate.source),
        )
        hops = (f"{a.node}.{leave.name}", *switches, f"{b.node}.{enter.name}")
        return _path(hops, self.distance(a.node, b.node), links)

    def _inside(self, a: GpuAt, b: GpuAt) -> FabricPath:
        self.nic(a), self.nic(b)
        kind = self.node_type(a.node)
        for island in kind.nvlink:
            if a.index in island.gpus and b.index in island.gpus:
                rate = island.rate
                links = (
                    Link(f"{a.node}.gpu{a.index}.nvlink out", rate.gb_per_s, rate.source),
                    Link(f"{b.node}.gpu{b.index}.nvlink in", rate.gb_per_s, rate.source),
                )
                return _path((f"{a.node}.gpu{a.index}", "nvlink", f"{a.node}.gpu{b.index}"), "same-node", links)
        host = Link(f"{a.node}.host", kind.host_path.gb_per_s, kind.host_path.source)
        return _path((f"{a.node}.gpu{a.index}", "host", f"{a.node}.gpu{b.index}"), "same-node", (host,))

    def _between(self, a: str, b: str) -> tuple[tuple[SwitchAt, ...], tuple[SwitchAt, ...], tuple[str, ...]]:
        """Switches whose uplinks are climbed from `a`, those whose are descended to `b`, and all that are passed."""
        from_a, from_b = self.switches_above(a), self.switches_above(b)
        for height, switch in enumerate(from_a):
            if switch in from_b:
                climbed, descended = from_a[:height], from_b[: from_b.index(switch)][::-1]
                return (
                    tuple(self._switches[name] for name in climbed),
                    tuple(self._switches[name] for name in descended),
                    (*climbed, switch, *descended),
                )
        raise PlacementError(
            f"no path from {a} to {b}: no switch of the site joins `{from_a[-1]}` and `{from_b[-1]}`",
            remedy="put both under one switch in the site, or keep prefill and decode under one of the two",
        )

    def _chain(self, leaf: str) -> tuple[str, ...]:
        chain = [leaf]
        while (parent := self._switches[chain[-1]].parent) is not None:
            chain.append(parent)
        return tuple(chain)


def _path(hops: tuple[str, ...], distance: PathDistance, links: tuple[Link, ...]) -> FabricPath:
    slowest = min(links, key=lambda link: link.gb_per_s)
    return FabricPath(hops=hops, gb_per_s=slowest.gb_per_s, distance=distance, source=slowest.source, links=links)


def _nearest_nics(kind: NodeType) -> dict[int, Nic]:
    nearest: dict[int, Nic] = {}
    for nic in kind.nics:
        for gpu in nic.gpus:
            if gpu not in nearest or nic.rate.gb_per_s > nearest[gpu].rate.gb_per_s:
                nearest[gpu] = nic
    return nearest
