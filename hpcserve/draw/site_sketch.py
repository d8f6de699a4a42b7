"""A site's switches as a tree of few parts: what looks alike is drawn once, with how often it is there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from hpcserve.nouns import NodeType, NvlinkDomain, Rate, Site, Switch
from hpcserve.site import expand_hosts, hosts_of

__all__ = ["Part", "Sketch", "sketch_of"]

_MOST_BOXES = 8
"""Leaf boxes that a page or screen holds side by side; of more, those that look alike are folded."""

_ALIKE, _SAME_RATES, _EVERYTHING = range(3)
"""How much is folded: equal switches; those of equal rates whatever the node counts; all of one parent."""

_NOWHERE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One switch, several that look alike, or the rail leaves of the same nodes."""

    count: int
    """Switches that look alike; where `rails` has several, groups of rail leaves that look alike."""
    names: tuple[str, ...]
    """Every switch of the part."""
    hosts: tuple[str, ...]
    """Every node plugged into them, each once; none for an upper switch."""
    leaves: tuple[tuple[str, ...], ...]
    """The nodes of each of the `count` switches; no nodes where it is an upper one."""
    rails: tuple[int, ...]
    """Rails of its leaves, sorted; empty where the leaves take every NIC of their nodes."""
    uplinks: tuple[Rate, ...]
    """The distinct rates to the parent; of one switch each. Empty for a root and below a mesh."""
    meshes: tuple[Rate, ...]
    """The distinct rates of direct links between each two of the parts below; empty without a mesh."""
    below: tuple["Part", ...]

    @property
    def fewest_hosts(self) -> int:
        """Nodes of the smallest of its switches."""
        return min(map(len, self.leaves))

    @property
    def most_hosts(self) -> int:
        """Nodes of the largest of its switches."""
        return max(map(len, self.leaves))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """A whole site: its roots, its node types with their nodes, its NVLink domains by node."""

    site: Site
    roots: tuple[Part, ...]
    kind_of: dict[str, NodeType]
    kind_name_of: dict[str, str]
    domain_of: dict[str, NvlinkDomain]

    @property
    def gpus(self) -> int:
        """GPUs (or slots) of all nodes."""
        return sum(kind.gpu.count for kind in self.kind_of.values())


def sketch_of(site: Site, *, most_boxes: int = _MOST_BOXES) -> Sketch:
    """The sketch of a site that `load_site` has checked.

    Folds as little as leaves at most `most_boxes` leaf boxes: first switches that are equal but for their names, then
    those of equal rates, then all of one parent; each time leaves first, then the switches above them, and so on.
    """
    kind_name_of = {host: group.type for group in site.nodes for host in expand_hosts(group.hosts)}
    by_name = {switch.name: switch for switch in site.switches}
    children = {
        name: [by_name[one] for one in expand_hosts(switch.switches)] if switch.switches else []
        for name, switch in by_name.items()
    }
    owned = {child.name for below in children.values() for child in below}
    top = [switch for switch in site.switches if switch.name not in owned]
    maker = _Maker(children=children, kind_name_of=kind_name_of)
    highest = max((maker.height(switch) for switch in top), default=0)
    roots = maker.parts(top, _ALIKE, _NOWHERE)
    for fold, height in product((_ALIKE, _SAME_RATES, _EVERYTHING), range(highest + 1)):
        if _boxes(roots) <= most_boxes:
            break
        roots = maker.parts(top, fold, height)
    return Sketch(
        site=site,
        roots=roots,
        kind_of=dict(hosts_of(site)),
        kind_name_of=kind_name_of,
        domain_of={host: domain for domain in site.nvlink_domains for host in expand_hosts(domain.hosts)},
    )


def _boxes(parts: Iterable[Part]) -> int:
    return sum(_boxes(part.below) if part.below else 1 for part in parts)


@dataclass(frozen=True, slots=True)
class _Maker:
    children: dict[str, list[Switch]]
    kind_name_of: dict[str, str]

    def height(self, switch: Switch) -> int:
        """Switches between this one and its farthest leaf, itself not counted."""
        return max((self.height(child) + 1 for child in self.children[switch.name]), default=0)

    def parts(self, switches: Sequence[Switch], fold: int, highest: int) -> tuple[Part, ...]:
        """The switches of one parent, or of several alike parents, as parts; those above `highest` are not folded."""
        together: dict[tuple[object, ...], list[tuple[Switch, ...]]] = {}
        for number, unit in enumerate(_units(switches)):
            key = self._look(unit, fold) if self.height(unit[0]) <= highest else ("alone", number)
            together.setdefault(key, []).append(unit)
        return tuple(self._part(units, fold, highest) for units in together.values())

    def _part(self, units: Sequence[tuple[Switch, ...]], fold: int, highest: int) -> Part:
        switches = [switch for unit in units for switch in unit]
        hosts = [_hosts(unit[0]) for unit in units]
        below = [child for switch in switches for child in self.children[switch.name]]
        return Part(
            count=len(units),
            names=tuple(switch.name for switch in switches),
            hosts=tuple(dict.fromkeys(host for unit in hosts for host in unit)),
            leaves=tuple(hosts),
            rails=tuple(sorted({switch.rail for switch in switches if switch.rail is not None})),
            uplinks=_distinct(switch.uplink for switch in switches),
            meshes=_distinct(switch.mesh for switch in switches),
            below=self.parts(below, fold, highest),
        )

    def _look(self, unit: tuple[Switch, ...], fold: int) -> tuple[object, ...]:
        """What two switches must share to be drawn as one."""
        if fold == _EVERYTHING:
            return ("leaf" if unit[0].hosts else "upper",)
        return tuple(self._looks(switch, fold) for switch in unit)

    def _looks(self, switch: Switch, fold: int) -> tuple[object, ...]:
        kinds = [self.kind_name_of[host] for host in _hosts(switch)]
        rates = (switch.uplink, switch.mesh, switch.rail)
        below = [self._looks(child, fold) for child in self.children[switch.name]]
        if fold == _SAME_RATES:
            return (*rates, frozenset(kinds), frozenset(below))
        return (*rates, tuple(sorted(kinds)), tuple(sorted(below, key=repr)))


def _units(switches: Sequence[Switch]) -> list[tuple[Switch, ...]]:
    """Rail leaves of the same nodes together, every other switch alone; in the site's order."""
    groups: dict[tuple[str, str], list[Switch]] = {}
    for switch in switches:
        railed = switch.rail is not None and switch.hosts is not None
        key = ("rails", switch.hosts or "") if railed else ("alone", switch.name)
        groups.setdefault(key, []).append(switch)
    return [tuple(group) for group in groups.values()]


def _hosts(switch: Switch) -> tuple[str, ...]:
    return expand_hosts(switch.hosts) if switch.hosts else ()


def _distinct(rates: Iterable[Rate | None]) -> tuple[Rate, ...]:
    return tuple(dict.fromkeys(rate for rate in rates if rate is not None))
