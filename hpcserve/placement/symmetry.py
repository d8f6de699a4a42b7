"""Which nodes are alike: the nested parts of a fabric, and what may be exchanged without changing any path.

A part is a set of nodes: one node, an NVLink domain, the nodes of one leaf (or of the same leaves, one for each rail),
those below the switches above, and so on. Two parts of one kind under the same parent may change places, and so may
what is in them: every path keeps its cost. What does not nest so (an NVLink domain across parts of several leaves, a
leaf that shares only some of its nodes with another rail's) is never exchanged: its name is part of the kinds of its
nodes.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcserve.placement.chains import Chains, Key

__all__ = ["Part", "parts_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the candidates. `nodes` are ascending numbers; children are in the order of theirs."""

    number: int
    kind: int
    height: int
    """0: a node."""
    nodes: tuple[int, ...]
    children: tuple["Part", ...]
    firsts: tuple[int, ...]
    """While nothing in it is used: its first node of each kind that can be told apart."""


class Kinds:
    """Small numbers for what is equal."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def __call__(self, *what: Hashable) -> int:
        """The number of `what`, a new one the first time."""
        return self._numbers.setdefault(what, len(self._numbers))


def parts_of(
    chains: Chains,
    nodes: Sequence[str],
    sets: Sequence[Hashable],
    *,
    most: int,
    always: frozenset[str],
    roughly: bool,
) -> tuple[tuple[str, ...], tuple[Part, ...]]:
    """The nodes that can matter, in the chains' order, and the outermost parts of them.

    `sets`: of each node what else tells it from others. Of the children of one kind in a part the first `most` are
    kept, as no more workers than that can be in them, and whatever is in `always`. `roughly`: what was measured alike
    within a tenth is taken as alike.
    """
    kinds = Kinds()
    told = dict(zip(nodes, sets, strict=True))
    tree = _Tree(chains, kinds, told, roughly=roughly)
    roots = tree.grown([node for node in chains.order if node in told])
    kept = frozenset(name for root in tree.thinned(roots, most) for name in tree.names(root)) | always
    names = tuple(node for node in chains.order if node in kept and node in told)
    numbers = {name: number for number, name in enumerate(names)}
    return names, tuple(_numbered(roots, numbers, iter(range(10 * len(told) + 10))))


@dataclass(frozen=True, slots=True)
class _Branch:
    kind: int
    node: str | None
    children: tuple["_Branch", ...]


class _Tree:
    """Branches of all candidates, before they are thinned."""

    def __init__(self, chains: Chains, kinds: Kinds, told: Mapping[str, Hashable], *, roughly: bool) -> None:
        self._roughly = roughly
        self._chains = chains
        self._kinds = kinds
        self._told = told
        self._likeness: dict[Key, Hashable] = {}

    def grown(self, nodes: Sequence[str], depth: int = 0) -> tuple[_Branch, ...]:
        """The branches of nodes that are in one part `depth` steps from the outermost."""
        groups: dict[Key | str, list[str]] = {}
        for node in nodes:
            chain = self._chains.of[node]
            groups.setdefault(chain[-1 - depth] if depth < len(chain) else node, []).append(node)
        return tuple(
            self._leaf(key) if isinstance(key, str) else self._part(key, self.grown(inside, depth + 1))
            for key, inside in groups.items()
        )

    def thinned(self, branches: Sequence[_Branch], most: int) -> Iterator[_Branch]:
        """The first `most` branches of each kind, themselves thinned."""
        counts: dict[int, int] = {}
        for branch in branches:
            counts[branch.kind] = counts.get(branch.kind, 0) + 1
            if counts[branch.kind] <= most:
                yield _Branch(branch.kind, branch.node, tuple(self.thinned(branch.children, most)))

    def names(self, branch: _Branch) -> Iterator[str]:
        """The nodes of a branch."""
        if branch.node is not None:
            yield branch.node
        for child in branch.children:
            yield from self.names(child)

    def _leaf(self, node: str) -> _Branch:
        return _Branch(
            self._kinds("node", self._chains.colour(node, roughly=self._roughly), self._told[node]), node, ()
        )

    def _part(self, key: Key, children: tuple[_Branch, ...]) -> _Branch:
        if key not in self._likeness:
            self._likeness[key] = self._chains.likeness(key)
        inside = tuple(sorted(child.kind for child in children))
        return _Branch(self._kinds("part", self._likeness[key], inside), None, children)


def _numbered(branches: Sequence[_Branch], numbers: Mapping[str, int], fresh: Iterator[int]) -> Iterator[Part]:
    """The branches as parts of the nodes that have a number."""
    for branch in branches:
        if branch.node is not None:
            if branch.node in numbers:
                number = numbers[branch.node]
                yield Part(
                    number=next(fresh), kind=branch.kind, height=0, nodes=(number,), children=(), firsts=(number,)
                )
            continue
        children = tuple(_numbered(branch.children, numbers, fresh))
        if children:
            firsts: dict[int, Part] = {}
            for child in children:
                firsts.setdefault(child.kind, child)
            yield Part(
                number=next(fresh),
                kind=branch.kind,
                height=1 + max(child.height for child in children),
                nodes=tuple(node for child in children for node in child.nodes),
                children=children,
                firsts=tuple(sorted(node for child in firsts.values() for node in child.firsts)),
            )
