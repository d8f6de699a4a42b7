"""Where workers can be placed: nodes with free GPUs, and which of them are alike."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcserve.fabric import Fabric, GpuAt

__all__ = ["Candidate", "Ground", "Region", "Seat"]

GpuKind = tuple[int, int, float]
Subtree = tuple[int, frozenset[str]]
"""Kind, and the names of the candidates in it."""
Region = tuple[tuple[int, ...], tuple[int, ...]]
"""Nodes for prefill (and aggregated) workers, and nodes for decode workers; both in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One node that may be used: its GPUs and cores, by the node's own numbers."""

    name: str
    gpus: tuple[int, ...]
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """Where one worker sits: a candidate's number, and its GPUs in rank order."""

    node: int
    gpus: tuple[int, ...]


class Ground:
    """Candidates in order, thinned to those that can matter, with what makes nodes and GPUs interchangeable.

    Nodes of one type and one set of GPUs under one leaf are interchangeable until one is used, and so are whole
    subtrees of switches of equal rates and equal content. As `workers` workers use at most as many nodes, only so many
    of each kind below each switch are kept, the first ones.
    """

    def __init__(self, fabric: Fabric, candidates: Sequence[Candidate], *, workers: int) -> None:
        self.fabric = fabric
        self._kinds: dict[tuple[object, ...], int] = {}
        self._kind_of_switch: dict[str, int] = {}
        kept = self._thinned([candidate for candidate in candidates if candidate.gpus], workers)
        self.candidates = tuple(candidate for candidate in candidates if candidate.name in kept)
        self._gpu_kinds = [
            {gpu: self._gpu_kind(candidate, gpu) for gpu in candidate.gpus} for candidate in self.candidates
        ]
        self._node_kinds = [self._node_kind(candidate) for candidate in self.candidates]
        self._above = [fabric.switches_above(candidate.name) for candidate in self.candidates]

    def openings(self, used: Mapping[int, frozenset[int]]) -> Iterator[int]:
        """Nodes worth trying, in order: those in use, and the first of each kind of unused ones."""
        touched = {switch for node in used for switch in self._above[node]}
        seen: set[tuple[object, ...]] = set()
        for node in range(len(self.candidates)):
            if node in used:
                yield node
                continue
            key: list[object] = [self._node_kinds[node]]
            for switch in self._above[node]:
                if switch in touched:
                    key.append(switch)
                    break
                key.append(self._kind_of_switch[switch])
            if tuple(key) not in seen:
                seen.add(tuple(key))
                yield node

    def regions(self) -> list[Region]:
        """Parts of the ground to fill: all, one node, one leaf, one leaf against the others; alike ones once."""
        everything = tuple(range(len(self.candidates)))
        regions = [(everything, everything)]
        first_nodes = list(self.openings({}))
        regions += [((node,), (node,)) for node in first_nodes]
        for leaf in dict.fromkeys(self._above[node][0] for node in first_nodes):
            inside = tuple(node for node in everything if self._above[node][0] == leaf)
            outside = tuple(node for node in everything if self._above[node][0] != leaf)
            regions += [(inside, inside), (inside, outside), (outside, inside)]
            regions += [(inside[:cut], inside[cut:]) for cut in range(1, len(inside))]
        return regions

    def seats(self, node: int, taken: frozenset[int], ranks: int) -> list[Seat]:
        """Every seat for `ranks` ranks on the GPUs of a node that are not taken, alike ones once; lowest first."""
        by_kind: dict[GpuKind, list[int]] = {}
        for gpu, kind in self._gpu_kinds[node].items():
            if gpu not in taken:
                by_kind.setdefault(kind, []).append(gpu)
        groups = [sorted(by_kind[kind]) for kind in sorted(by_kind)]
        return sorted(Seat(node, gpus) for gpus in _picks(groups, ranks))

    def is_split(self, seat: Seat) -> bool:
        """Whether the ranks of a seat share no NVLink island although the node has some."""
        islands = self.fabric.node_type(self.candidates[seat.node].name).nvlink
        return len(seat.gpus) > 1 and bool(islands) and not any(set(seat.gpus) <= set(one.gpus) for one in islands)

    def _gpu_kind(self, candidate: Candidate, gpu: int) -> GpuKind:
        """GPUs of one kind may be swapped: same island, and same NIC or each alone on one of the same rate."""
        kind = self.fabric.node_type(candidate.name)
        island = next((i for i, one in enumerate(kind.nvlink) if gpu in one.gpus), -1)
        nic = self.fabric.nic(GpuAt(candidate.name, gpu))
        sharing = sum(self.fabric.nic(GpuAt(candidate.name, other)).name == nic.name for other in candidate.gpus)
        return island, -1 if sharing == 1 else kind.nics.index(nic), nic.rate.gb_per_s

    def _node_kind(self, candidate: Candidate) -> int:
        return self._kind("node", id(self.fabric.node_type(candidate.name)), candidate.gpus)

    def _kind(self, *what: object) -> int:
        return self._kinds.setdefault(what, len(self._kinds))

    def _thinned(self, candidates: Sequence[Candidate], workers: int) -> frozenset[str]:
        """Names of the candidates to keep: bottom-up, the first `workers` children of each kind below each switch."""
        level: dict[str, list[Subtree]] = {}
        for candidate in candidates:
            leaf = self.fabric.leaf_of(candidate.name)
            level.setdefault(leaf, []).append((self._node_kind(candidate), frozenset({candidate.name})))
        order = {candidate.name: number for number, candidate in enumerate(candidates)}
        roots: list[Subtree] = []
        heights: dict[str, int] = {}
        for candidate in candidates:
            for height, switch in enumerate(self.fabric.switches_above(candidate.name)):
                heights[switch] = max(heights.get(switch, 0), height)
        for switch in sorted(heights, key=lambda name: heights[name]):
            children = sorted(level.pop(switch, []), key=lambda child: min(order[name] for name in child[1]))
            counts: dict[int, int] = {}
            kept: list[Subtree] = []
            for kind, names in children:
                counts[kind] = counts.get(kind, 0) + 1
                if counts[kind] <= workers:
                    kept.append((kind, names))
            at = self.fabric.switch(switch)
            self._kind_of_switch[switch] = self._kind("switch", at.uplink_gb_per_s, *sorted(kind for kind, _ in kept))
            whole = (self._kind_of_switch[switch], frozenset[str]().union(*(names for _, names in kept)))
            (level.setdefault(at.parent, []) if at.parent is not None else roots).append(whole)
        return frozenset[str]().union(*(names for _, names in roots))


def _picks(groups: Sequence[Sequence[int]], ranks: int) -> Iterator[tuple[int, ...]]:
    """Every way to take `ranks` GPUs from the groups, the first ones of each."""
    if not groups:
        if ranks == 0:
            yield ()
        return
    for count in range(min(ranks, len(groups[0])), -1, -1):
        for rest in _picks(groups[1:], ranks - count):
            yield (*groups[0][:count], *rest)
