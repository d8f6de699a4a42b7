"""Where workers can be placed: nodes with free GPUs, and which of them are alike."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import combinations

from hpcserve.fabric import Fabric, GpuAt
from hpcserve.placement.alike_gpus import AlikeGpus
from hpcserve.placement.candidate import Candidate, Seat, Used, areas_of
from hpcserve.placement.chains import Chains
from hpcserve.placement.symmetry import Part, parts_of

__all__ = ["Ground"]


class Ground:
    """Candidates in the order of the fabric's parts, thinned to those that can matter, with what is alike.

    As `workers` workers use at most as many nodes, only so many of each kind in each part are kept, the first ones, and
    those in `always`.

    Rails that are joined alike may change places on all nodes at once, as long as each worker has one rank: with more,
    the ranks' order would change too, and with it which rank meets which on the same rail. `rails_alike` says so.

    `roughly`: nodes are alike where what was measured of them is within a tenth. Seats are then found quickly among
    many nodes, and no claim is made that there are no better ones.
    """

    def __init__(
        self,
        fabric: Fabric,
        candidates: Sequence[Candidate],
        *,
        workers: int,
        chains: Chains | None = None,
        always: Iterable[str] = (),
        rails_alike: bool = False,
        roughly: bool = False,
    ) -> None:
        self.fabric = fabric
        self.is_rough = roughly
        self._ports: dict[tuple[str, int], float] = {}
        self._rails_alike = rails_alike
        chains = self.chains = chains or Chains(fabric)
        given = {candidate.name: candidate for candidate in candidates if candidate.gpus}
        names, self.roots = parts_of(
            chains,
            list(given),
            [(candidate.gpus, candidate.partition) for candidate in given.values()],
            most=workers,
            always=frozenset(always),
            roughly=roughly,
        )
        self.candidates = tuple(given[name] for name in names)
        self.numbers = {name: number for number, name in enumerate(names)}
        self._above: list[tuple[int, ...]] = [()] * len(names)
        self._heights: dict[int, int] = {}
        for root in self.roots:
            self._note_above(root, ())
        leaves = [tuple(dict.fromkeys(fabric.leaves_of(name).values())) for name in names]
        self.leaf_of = _firsts(leaves)
        self.gpus = AlikeGpus(fabric, self.candidates, roughly=roughly, regular=chains.are_rails_regular)
        self._areas = [areas_of(fabric, candidate) for candidate in self.candidates]

    def openings(self, used: Used, within: Sequence[Part] | None = None) -> Iterator[int]:
        """Nodes worth trying, in order: those in use, and of the others the first of each kind in each part in use."""
        touched = {number for node in used for number in self._above[node]}
        return self._open(self.roots if within is None else within, touched)

    def seats(self, node: int, used: Used, ranks: int, *, rails_alike: bool | None = None) -> list[Seat]:
        """Every seat for `ranks` ranks on the GPUs of a node that are not used, alike ones once; lowest first.

        The ranks of a seat share an NVLink island, where the node has any and its type does not say otherwise.
        """
        exchange = self._rails_alike if rails_alike is None else rails_alike
        taken = used.get(node, frozenset())
        areas = self._areas[node] if ranks > 1 else (self.candidates[node].gpus,)
        found: list[Seat] = []
        touched: set[int | None] | None = None
        for area in areas:
            free = [gpu for gpu in area if gpu not in taken]
            if len(free) < ranks:
                continue
            if exchange and touched is None:
                touched = self.gpus.touched(used)
            found += [Seat(node, tuple(sorted(gpus))) for gpus in _picks(self.gpus.groups(node, free, touched), ranks)]
        return sorted(found)

    def has_room(self, node: int, used: Used, ranks: int) -> bool:
        """Whether a node has any seat for so many ranks."""
        taken = used.get(node, frozenset())
        areas = self._areas[node] if ranks > 1 else (self.candidates[node].gpus,)
        return any(len(area) - len(taken.intersection(area)) >= ranks for area in areas)

    def port_gb_per_s(self, seat: Seat) -> float:
        """One-way GB/s of the slowest of a seat's ways to its leaf."""
        name = self.candidates[seat.node].name
        return min(self._port(name, gpu) for gpu in seat.gpus)

    def node_port_gb_per_s(self, node: int) -> float:
        """The fastest of the ways from a node's GPUs to their leaves."""
        candidate = self.candidates[node]
        return max(self._port(candidate.name, gpu) for gpu in candidate.gpus)

    def _port(self, name: str, gpu: int) -> float:
        key = (name, gpu)
        if key not in self._ports:
            self._ports[key] = self.fabric.port_gb_per_s(GpuAt(name, gpu))
        return self._ports[key]

    def is_split(self, seat: Seat) -> bool:
        """Whether the ranks of a seat share no NVLink island although the node has some."""
        islands = self.fabric.node_type(self.candidates[seat.node].name).nvlink
        return len(seat.gpus) > 1 and bool(islands) and not any(set(seat.gpus) <= set(one.gpus) for one in islands)

    def parts(self) -> Iterator[Part]:
        """Every part, the outermost first."""
        waiting = list(self.roots)
        while waiting:
            part = waiting.pop()
            yield part
            waiting += part.children

    def gpus_in(self, part: Part) -> int:
        """GPUs of all nodes of a part."""
        return sum(len(self.candidates[node].gpus) for node in part.nodes)

    @property
    def top(self) -> int:
        """The height of all parts together, which no switch need join."""
        return 1 + max((root.height for root in self.roots), default=0)

    def height(self, a: int, b: int) -> int:
        """The height of the smallest part that both nodes are in, 0 for one node; `top` where there is none."""
        above = set(self._above[b])
        return next((self._heights[number] for number in reversed(self._above[a]) if number in above), self.top)

    def _note_above(self, part: Part, above: tuple[int, ...]) -> None:
        chain = (*above, part.number)
        self._heights[part.number] = part.height
        if not part.children:
            self._above[part.nodes[0]] = chain
        for child in part.children:
            self._note_above(child, chain)

    def _open(self, parts: Iterable[Part], touched: set[int]) -> Iterator[int]:
        seen: set[int] = set()
        for part in parts:
            if part.number in touched:
                yield from self._open(part.children, touched) if part.children else part.nodes
            elif part.kind not in seen:
                seen.add(part.kind)
                yield from part.firsts


def _firsts(things: Sequence[Hashable]) -> tuple[int, ...]:
    first: dict[Hashable, int] = {}
    return tuple(first.setdefault(thing, number) for number, thing in enumerate(things))


def _picks(groups: Sequence[Sequence[int]], ranks: int) -> Iterator[tuple[int, ...]]:
    """Every way to take `ranks` GPUs from the groups, the first ones of each."""
    there = sum(map(len, groups))
    if there <= ranks:
        if there == ranks:
            yield tuple(gpu for group in groups for gpu in group)
        return
    if there == len(groups):  # no two are alike
        yield from combinations([gpu for group in groups for gpu in group], ranks)
        return
    for count in range(min(ranks, len(groups[0])), -1, -1):
        for rest in _picks(groups[1:], ranks - count):
            yield (*groups[0][:count], *rest)
