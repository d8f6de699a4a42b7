"""`Fabric`: nodes under switches and in NVLink domains, and the path between two of their GPUs."""

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

from hpcserve.errors import NotFoundError, PlacementError
from hpcserve.fabric.inside import Inside
from hpcserve.fabric.likeness import Fastest, fastest_of, measured_of
from hpcserve.fabric.links import FabricPath, GpuAt, Link, PathDistance, link_of
from hpcserve.fabric.overlay import Figure, Overlay
from hpcserve.fabric.share import Share, max_min
from hpcserve.fabric.switches import Between, SwitchAt, Switches
from hpcserve.nouns import Nic, NodeType, NvlinkDomain
from hpcserve.site import fold_hosts

__all__ = ["Fabric"]


class Fabric:
    """Paths between the GPUs of one site. Looking one up takes time in the depth of the switches, not their number."""

    def __init__(
        self,
        *,
        node_types: Mapping[str, tuple[str, NodeType]],
        leaves: Mapping[str, Mapping[int | None, str]],
        switches: Mapping[str, SwitchAt],
        domains: Mapping[str, NvlinkDomain],
        overlay: Overlay,
    ) -> None:
        self._node_types = {node: kind for node, (_, kind) in node_types.items()}
        self._leaves = leaves
        self._switches = Switches(switches, overlay.over)
        self._domains = domains
        self._overlay = overlay
        made: dict[str, Inside] = {}
        for name, kind in node_types.values():
            if name not in made:
                made[name] = Inside(name, kind)
        self._inside = {node: made[name] for node, (name, _) in node_types.items()}
        self._ends: dict[GpuAt, tuple[str, str, tuple[Link, ...], tuple[Link, ...]]] = {}
        self._measured = measured_of(overlay, self._node_types, switches)

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
        """The leaf switch of a node, of its first rail where it has rails; raises NotFoundError as `node_type` does."""
        self.node_type(node)
        return next(iter(self._leaves[node].values()))

    def leaves_named(self, node: str) -> str:
        """What a node is plugged into, in words: its leaf switch, or those of all its rails, `rail[0-7]`."""
        return fold_hosts(tuple(dict.fromkeys(self.leaves_of(node).values())))

    def leaves_of(self, node: str) -> Mapping[int | None, str]:
        """The leaf switch of each rail of a node, lowest first; of rail None where there are no rails."""
        self.node_type(node)
        return self._leaves[node]

    def switches_above(self, leaf: str) -> tuple[str, ...]:
        """The leaf switch itself, the switch above it, and so on to the root; KeyError where there is none."""
        return self._switches.above(leaf)

    def switch(self, name: str) -> SwitchAt:
        """The switch of that name; KeyError where there is none."""
        return self._switches.switches[name]

    def domain_of(self, node: str) -> NvlinkDomain | None:
        """The NVLink domain that a node is in; None where it is in none."""
        return self._domains.get(node)

    def is_measured(self, node: str) -> bool:
        """Whether anything was measured of this very node: of links inside it, or of pairs that it is in."""
        return node in self._measured.inside or node in self._measured.singular

    @property
    def has_measured_paths(self) -> bool:
        """Whether whole paths were measured: they may be faster than what is known of their links."""
        return self._overlay.says_of_paths

    def node_likeness(self, node: str, *, roughly: bool = False) -> Hashable:
        """Equal for nodes that nothing inside tells apart: of one type, and with the same figures measured, if any.

        `roughly`: with about the same figures.
        """
        self.node_type(node)
        measured = self._measured.rough_likeness(node) if roughly else self._measured.likeness(node)
        return self._inside[node].name, measured

    @cached_property
    def fastest(self) -> Fastest:
        """What no path can exceed."""
        kinds = {id(kind): kind for kind in self._node_types.values()}
        domains = {domain.name: domain for domain in self._domains.values()}
        return fastest_of(kinds.values(), domains.values(), self._overlay)

    def switch_likeness(self, name: str) -> Hashable:
        """Equal for switches of equal links to what is above them, and between what is below them."""
        at = self.switch(name)
        rates = () if at.parent is None else self._switches.rates(name)
        return rates, at.mesh.known_gb_per_s if at.mesh else 0.0, name if name in self._measured.singular else None

    def nic(self, gpu: GpuAt) -> Nic:
        """The NIC that carries a GPU's KV: of those that it is nearest to, the fastest, then the first."""
        self.node_type(gpu.node)
        try:
            return self._inside[gpu.node].nics[gpu.index]
        except KeyError:
            raise NotFoundError(
                f"no GPU {gpu.index} on node `{gpu.node}`", remedy="see the site's `gpu.count`"
            ) from None

    def port_gb_per_s(self, gpu: GpuAt) -> float:
        """One-way GB/s between a GPU and its leaf switch: of the slowest link there, 0 where nobody knows."""
        _, _, out, into = self._end(gpu)
        return min(link.gb_per_s for link in (*out, *into))

    def distance(self, a: str, b: str) -> PathDistance:
        """How far two nodes are apart."""
        if a == b:
            return "same-node"
        return "same-leaf" if self.leaf_of(a) == self.leaf_of(b) else "across-leaves"

    def path(self, a: GpuAt, b: GpuAt) -> FabricPath:
        """The path from one GPU to another, one way.

        Inside a node NVLink where both are in one island, else the host; between nodes of one NVLink domain NVLink;
        else the NIC nearest to each, the leaf of that NIC's rail and the switches up to the lowest common one. Raises
        PlacementError where no switch joins the two nodes or the rate of a link is unknown, ValueError for a GPU and
        itself.
        """
        hops, distance, links, between = self._way(a, b)
        figure = self._alone(a, b, between) if self._overlay.says_of_paths else None
        if figure is not None:
            links = self._overlay.over_path(links, figure)
        slowest = min(links, key=_rate)
        if not slowest.gb_per_s:
            raise PlacementError(
                f"no rate from GPU {a.index} of {a.node} to GPU {b.index} of {b.node}: that of link `{slowest.name}` is"
                f" unknown ({slowest.source})",
                remedy=f"measure it with `hpcserve site measure`, or write it in the site: {slowest.where}",
            )
        return FabricPath(hops=hops, gb_per_s=slowest.gb_per_s, distance=distance, source=slowest.source, links=links)

    def route(self, a: GpuAt, b: GpuAt) -> tuple[tuple[str, ...], tuple[Link, ...]]:
        """Hops and links of `path`, for those who ask often; raises what it raises."""
        if not self._overlay.says_of_paths:
            hops, _, links, _ = self._way(a, b)
            if all(link.gb_per_s for link in links):
                return hops, links
        path = self.path(a, b)
        return path.hops, path.links

    def links(self, a: GpuAt, b: GpuAt) -> tuple[Link, ...]:
        """The links of `path`, those of unknown rate too (0 GB/s), without what was measured of whole paths."""
        return self._way(a, b)[2]

    def path_class(self, a: GpuAt, b: GpuAt) -> str:
        """A name that paths of one kind share: of equal NICs of equal node types, over as many levels of switches."""
        return self._class(a, b, self._way(a, b)[3])

    def share(self, flows: Sequence[tuple[GpuAt, GpuAt]]) -> tuple[Share, ...]:
        """What each flow gets when all run at once, max-min fair; raises what `path` raises."""
        return max_min([self.path(a, b).links for a, b in flows])

    def _alone(self, a: GpuAt, b: GpuAt, between: Between | None) -> Figure | None:
        """What was measured of this path: of the pair itself, else of its class."""
        return self._overlay.pairs.get((a, b)) or self._overlay.classes.get(self._class(a, b, between))

    def _way(self, a: GpuAt, b: GpuAt) -> tuple[tuple[str, ...], PathDistance, tuple[Link, ...], Between | None]:
        """Hops, distance, links, and what lies between the leaves; None where no switch is passed."""
        if a == b:
            raise ValueError(f"GPU {a.index} of {a.node} and itself: no path is needed")
        if a.node == b.node:
            return self._way_inside(a, b)
        if self._domains and (domain := self._shared_domain(a, b)) is not None:
            hops = (f"{a.node}.gpu{a.index}", domain.name, f"{b.node}.gpu{b.index}")
            return hops, self.distance(a.node, b.node), self._nvlink(a, b, domain), None
        leave, enter = self._end(a), self._end(b)
        between = self._joined(a, b, leave[1], enter[1])
        distance: PathDistance = "across-leaves" if between.height else "same-leaf"
        return (leave[0], *between.hops, enter[0]), distance, leave[2] + between.links + enter[3], between

    def _way_inside(self, a: GpuAt, b: GpuAt) -> tuple[tuple[str, ...], PathDistance, tuple[Link, ...], None]:
        self.nic(a), self.nic(b)
        domain = self._domains.get(a.node)
        via, made = self._inside[a.node].way(a, b)
        if via == "host" and domain is not None:
            via, made = domain.name, self._nvlink(a, b, domain)
        hops = (f"{a.node}.gpu{a.index}", via, f"{a.node}.gpu{b.index}")
        return hops, "same-node", tuple(self._overlay.over(link) for link in made), None

    def _class(self, a: GpuAt, b: GpuAt, between: Between | None) -> str:
        here, there = self._inside[a.node], self._inside[b.node]
        if between is not None:
            way = "same leaf" if not between.height else f"{'mesh' if between.meshed else 'up'} {between.height}"
            return f"{way}: {here.like[a.index]} to {there.like[b.index]}"
        if a.node != b.node:
            return f"NVLink domain: {here.name} to {there.name}"
        by_host = here.way(a, b)[0] == "host" and a.node not in self._domains
        return f"in {here.name}: {'host' if by_host else 'NVLink'}"

    def _shared_domain(self, a: GpuAt, b: GpuAt) -> NvlinkDomain | None:
        domain = self._domains.get(a.node)
        if domain is None or self._domains.get(b.node) is not domain:
            return None
        self.nic(a), self.nic(b)
        return domain

    def _nvlink(self, a: GpuAt, b: GpuAt, domain: NvlinkDomain) -> tuple[Link, ...]:
        where = f"nvlink_domains, {domain.name}, rate"
        return (
            self._overlay.over(link_of(f"{a.node}.gpu{a.index}.nvlink out", domain.rate, where)),
            self._overlay.over(link_of(f"{b.node}.gpu{b.index}.nvlink in", domain.rate, where)),
        )

    def _end(self, gpu: GpuAt) -> tuple[str, str, tuple[Link, ...], tuple[Link, ...]]:
        """A GPU's port, its leaf, the links out of the node and those into it."""
        end = self._ends.get(gpu)
        if end is None:
            nic = self.nic(gpu)
            out, into = self._inside[gpu.node].port(gpu, nic)
            leaves = self._leaves[gpu.node]
            end = self._ends[gpu] = (
                f"{gpu.node}.{nic.name}",
                leaves[nic.rail] if nic.rail in leaves else self.leaf_of(gpu.node),
                tuple(self._overlay.over(link) for link in out),
                tuple(self._overlay.over(link) for link in into),
            )
        return end

    def _joined(self, a: GpuAt, b: GpuAt, leaf_a: str, leaf_b: str) -> Between:
        try:
            return self._switches.between(leaf_a, leaf_b)
        except PlacementError as error:
            raise PlacementError(f"no path from {a.node} to {b.node}: {error.message}", remedy=error.remedy) from None


def _rate(link: Link) -> float:
    return link.gb_per_s
