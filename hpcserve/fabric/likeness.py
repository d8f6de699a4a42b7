"""What tells one node or switch from another of its type: that something was measured of it."""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from math import log

from hpcserve.fabric.overlay import Overlay
from hpcserve.nouns import NodeType, NvlinkDomain

__all__ = ["Fastest", "Measured", "fastest_of", "measured_of"]

_ROUGHLY = 1.1
"""Figures within a tenth of each other are roughly the same: repeated transfers of one pair spread as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of each node the figures of links inside it, by the rest of their names; what has some with a certain other."""

    inside: dict[str, tuple[tuple[str, float], ...]]
    singular: frozenset[str]
    """Nodes of measured pairs, and switches at the ends of measured direct links."""
    slowest_pair: dict[str, float]
    """Of each node of measured pairs the slowest of them."""

    def likeness(self, node: str) -> Hashable:
        """Equal for nodes of which the same was measured; no other's where pairs with it were."""
        return self.inside.get(node, ()), node if node in self.singular else None

    def rough_likeness(self, node: str) -> Hashable:
        """Equal for nodes of which about the same was measured."""
        inside = tuple((name, round(log(rate, _ROUGHLY))) for name, rate in self.inside.get(node, ()))
        pair = self.slowest_pair.get(node)
        return inside, None if pair is None else round(log(pair, _ROUGHLY))


def measured_of(overlay: Overlay, nodes: Collection[str], switches: Collection[str]) -> Measured:
    """What an overlay says of single nodes and switches; nothing where nothing was measured."""
    inside: dict[str, list[tuple[str, float]]] = {}
    slowest: dict[str, float] = {}
    for pair, (gb_per_s, _) in overlay.pairs.items():
        for gpu in pair:
            slowest[gpu.node] = min(gb_per_s, slowest.get(gpu.node, gb_per_s))
    singular = set(slowest)
    for name, (gb_per_s, _) in sorted({**overlay.floors, **overlay.links}.items()):
        dots = [place for place, mark in enumerate(name) if mark == "."]
        for place in dots:
            if name[:place] in nodes:
                inside.setdefault(name[:place], []).append((name[place + 1 :], gb_per_s))
        ends = name.split(" to ")
        singular.update(end for end in ends if len(ends) > 1 and end in switches)
    return Measured(
        inside={node: tuple(figures) for node, figures in inside.items()},
        singular=frozenset(singular),
        slowest_pair=slowest,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fastest:
    """One-way GB/s that no path can exceed: by NICs, and inside nodes and NVLink domains; 0 where there is none."""

    by_nic: float
    inside: float


def fastest_of(kinds: Iterable[NodeType], domains: Iterable[NvlinkDomain], overlay: Overlay) -> Fastest:
    """The fastest figures that the site or a measurement has, whatever they are of: bounds, not predictions."""
    kinds = list(kinds)
    by_nic = [nic.rate.known_gb_per_s or 0.0 for kind in kinds for nic in kind.nics]
    inside = [kind.host_path.known_gb_per_s or 0.0 for kind in kinds]
    inside += [island.rate.known_gb_per_s or 0.0 for kind in kinds for island in kind.nvlink]
    inside += [domain.rate.known_gb_per_s or 0.0 for domain in domains]
    measured = [
        gb_per_s
        for figures in (overlay.links, overlay.floors, overlay.pairs, overlay.classes)
        for gb_per_s, _ in figures.values()
    ]
    ports = [
        gb_per_s
        for figures in (overlay.links, overlay.floors)
        for name, (gb_per_s, _) in figures.items()
        if "." in name and "nvlink" not in name and not name.endswith(".host")
    ]
    classes = [rate for name, (rate, _) in overlay.classes.items() if not name.startswith(("in ", "NVLink"))]
    pairs = [rate for (a, b), (rate, _) in overlay.pairs.items() if a.node != b.node]
    return Fastest(by_nic=max([*by_nic, *ports, *classes, *pairs]), inside=max([*inside, *measured]))
