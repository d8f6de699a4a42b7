"""The parts of a fabric that each node is in, smallest first, and an order in which parts are unbroken."""

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property

from hpcserve.fabric import Fabric

__all__ = ["Chains", "Key"]

Key = tuple[str, tuple[str, ...]]
"""What joins a part: `switches` and their names, one for each rail, or `domain` and its name."""


class Chains:
    """For every node of a fabric the parts that it is in, smallest first, and an order in which parts are unbroken.

    The order comes from the whole fabric, so that it is the same among any nodes that are granted.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        above: dict[tuple[str, ...], tuple[Key, ...]] = {}
        self.of: dict[str, tuple[Key, ...]] = {}
        for node in fabric.nodes:
            level = tuple(dict.fromkeys(fabric.leaves_of(node).values()))
            if level not in above:
                above[level] = _switches_above(fabric, level)
            self.of[node] = above[level]
        members: dict[Key, list[str]] = {}
        for node, chain in self.of.items():
            for key in chain:
                members.setdefault(key, []).append(node)
        self._crossing = _in_several(members)
        self._loose: dict[str, tuple[str, ...]] = {}
        self._domain_gb_per_s: dict[str, float | None] = {}
        self._nest_domains({key: frozenset(nodes) for key, nodes in members.items()})

    @property
    def are_rails_regular(self) -> bool:
        """Whether each switch stands for one rail of one part only."""
        return not self._crossing

    @cached_property
    def order(self) -> tuple[str, ...]:
        """All nodes, each part in one piece; parts, and nodes in them, as their first nodes stand in the site."""
        place = {node: number for number, node in enumerate(self._fabric.nodes)}
        first: dict[Key, int] = {}
        for node, chain in self.of.items():
            for key in chain:
                first.setdefault(key, place[node])
        return tuple(sorted(self.of, key=lambda node: (*(first[key] for key in reversed(self.of[node])), place[node])))

    def colour(self, node: str, *, roughly: bool) -> Hashable:
        """What tells a node from others beside the parts it nests in: itself, its rails, what does not nest."""
        leaves = self._fabric.leaves_of(node)
        names = list(dict.fromkeys(leaves.values()))
        rails = tuple((rail, names.index(leaf)) for rail, leaf in leaves.items())
        crossing = tuple(name for key in self.of[node] for name in key[1] if name in self._crossing)
        return self._fabric.node_likeness(node, roughly=roughly), rails, crossing, self._loose.get(node, ())

    def likeness(self, key: Key) -> Hashable:
        """Equal for parts that are joined alike."""
        what, names = key
        if what == "switches":
            return what, tuple(self._fabric.switch_likeness(name) for name in names)
        return what, self._domain_gb_per_s[names[0]]

    def _nest_domains(self, members: Mapping[Key, frozenset[str]]) -> None:
        domains: dict[str, list[str]] = {}
        for node in self.of:
            domain = self._fabric.domain_of(node)
            if domain is not None:
                domains.setdefault(domain.name, []).append(node)
                self._domain_gb_per_s[domain.name] = domain.rate.known_gb_per_s
        for name, nodes in domains.items():
            inside = frozenset(nodes)
            places = {node: _place(inside, [members[key] for key in self.of[node]]) for node in nodes}
            if None in places.values():
                for node in nodes:
                    self._loose[node] = (name,)
                continue
            for node, place in places.items():
                chain = self.of[node]
                self.of[node] = (*chain[:place], ("domain", (name,)), *chain[place:])


def _place(inside: frozenset[str], above: Sequence[frozenset[str]]) -> int | None:
    """Where in a chain of ever larger parts a set of nodes belongs; None where it crosses one of them."""
    for place, part in enumerate(above):
        if inside <= part:
            return place
        if not part <= inside:
            return None
    return len(above)


def _switches_above(fabric: Fabric, level: tuple[str, ...]) -> tuple[Key, ...]:
    chain: list[Key] = [("switches", level)]
    while True:
        parents = [fabric.switch(name).parent for name in level]
        if not any(parents):
            return tuple(chain)
        level = tuple(dict.fromkeys(parent or name for parent, name in zip(parents, level, strict=True)))
        chain.append(("switches", level))


def _in_several(members: Mapping[Key, Sequence[str]]) -> frozenset[str]:
    """Switches that stand in several parts' keys: their nodes do not nest."""
    seen: dict[str, Key] = {}
    several: set[str] = set()
    for key in members:
        for name in key[1]:
            if seen.setdefault(name, key) != key:
                several.add(name)
    return frozenset(several)
