"""Seatings to begin with: nodes filled in order, and each worker in turn where it costs least."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import pairwise

from hpcserve.fabric import Fabric
from hpcserve.nouns import Role
from hpcserve.placement.candidate import Candidate, Seat, areas_of
from hpcserve.placement.demand import StageOf, Wanted
from hpcserve.placement.ground import Ground
from hpcserve.placement.price import Prices
from hpcserve.placement.symmetry import Part
from hpcserve.placement.tally import Met, Seating, Tally, pairs_with

__all__ = ["begun", "filled", "greedy", "open_seats", "regions"]

_MOST_REGIONS = 10
_MOST_SEATS = 16
"""Seats of a node that greed looks at: beyond that only those whose GPUs are evenly spaced."""

_MOST_TIES = 12
_MOST_PRICED = 15_000
"""Pairs of seats after which no further region is begun with: about a second."""

_MOST_FRESH = 40
"""Nodes not yet in use that are looked at for one worker: there are more only where most are unlike each other."""

_MOST_OPTIONS = 320
"""Seats that are looked at for one worker, on all nodes together: beyond that the fastest two of each node."""


def filled(
    workers: Sequence[Wanted], candidates: Sequence[Candidate], fabric: Fabric
) -> dict[StageOf, tuple[str, tuple[int, ...]]]:
    """Node and GPUs of each stage where nodes are filled in their order, prefill first; without who finds no room."""
    free = [list(candidate.gpus) for candidate in candidates]
    first: dict[tuple[int, str | None], int] = {}
    seats: dict[StageOf, tuple[str, tuple[int, ...]]] = {}
    for worker in sorted(workers, key=lambda one: one.role == Role.DECODE):
        ranks = worker.tensor_parallel
        for number in range(first.get((ranks, worker.partition), 0), len(candidates)):
            if candidates[number].partition != worker.partition:
                continue
            chosen = _first_gpus(areas_of(fabric, candidates[number]), free[number], ranks)
            if chosen is not None:
                seats[worker.key] = (candidates[number].name, chosen)
                free[number] = [gpu for gpu in free[number] if gpu not in chosen]
                first[ranks, worker.partition] = number
                break
    return seats


def _first_gpus(areas: Sequence[Sequence[int]], free: Sequence[int], ranks: int) -> tuple[int, ...] | None:
    """The first GPUs that a worker's ranks may have together; None where there are too few."""
    for area in areas if ranks > 1 else [free]:
        inside = [gpu for gpu in free if gpu in area]
        if len(inside) >= ranks:
            return tuple(inside[:ranks])
    return None


def regions(ground: Ground, *, needed: int) -> Iterator[Sequence[Part]]:
    """Parts of the ground that hold all workers, alike ones once, the smallest first; second the whole ground."""
    seen: dict[int, Part] = {}
    for part in ground.parts():
        if ground.gpus_in(part) >= needed:
            seen.setdefault(part.kind, part)
    fitting = sorted(seen.values(), key=lambda part: (part.height, ground.gpus_in(part), part.nodes[0]))
    yield from ([part] for part in fitting[:1])
    yield ground.roots
    yield from ([part] for part in fitting[1:_MOST_REGIONS])


def begun(workers: Sequence[Wanted], ground: Ground, prices: Prices) -> Iterator[Seating]:
    """Greedy seatings in each region, until enough pairs of seats have been priced."""
    start = prices.looked_up
    for region in regions(ground, needed=sum(worker.tensor_parallel for worker in workers)):
        seating = greedy(workers, ground, prices, region)
        if seating is not None:
            yield seating
        if prices.looked_up - start > _MOST_PRICED:
            return


def greedy(workers: Sequence[Wanted], ground: Ground, prices: Prices, within: Sequence[Part]) -> Seating | None:
    """Each worker in turn in the seat that costs least so far; None where one finds none."""
    filling = _Filling(workers, ground, prices)
    for worker in workers:
        seat = filling.cheapest(open_seats(ground, filling.used, worker, within))
        if seat is None:
            return None
        filling.take(seat)
    return tuple(filling.seats)


def open_seats(
    ground: Ground, used: Mapping[int, frozenset[int]], worker: Wanted, within: Sequence[Part] | None = None
) -> Iterator[Seat]:
    """Seats worth trying for one worker: those that the ground tells apart; of many the even ones, and the fastest."""
    ranks = worker.tensor_parallel
    openings = [
        node
        for node in ground.openings(used, within)
        if ground.candidates[node].partition == worker.partition and ground.has_room(node, used, ranks)
    ]
    fresh = [node for node in openings if node not in used]
    if len(fresh) > _MOST_FRESH:
        fastest = set(nlargest(_MOST_FRESH, fresh, key=ground.node_port_gb_per_s))
        openings = [node for node in openings if node in used or node in fastest]
    share = max(2, _MOST_OPTIONS // max(1, len(openings)))
    for node in openings:
        seats = ground.seats(node, used, ranks)
        if len(seats) > min(share, _MOST_SEATS):
            seats = [seat for seat in seats if _is_even(seat.gpus)] or seats
        yield from seats if len(seats) <= share else nlargest(share, seats, key=ground.port_gb_per_s)


def _is_even(gpus: Sequence[int]) -> bool:
    """Whether GPUs are evenly spaced, and from a boundary of their number on where they are next to each other."""
    step = gpus[1] - gpus[0] if len(gpus) > 1 else 1
    if any(right - left != step for left, right in pairwise(gpus)):
        return False
    return step > 1 or gpus[0] % len(gpus) == 0


@dataclass(slots=True)
class _Filling:
    """Workers seated so far, the first ones, and what they cost."""

    workers: Sequence[Wanted]
    ground: Ground
    prices: Prices
    seats: list[Seat] = field(default_factory=list)
    used: dict[int, frozenset[int]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)

    def take(self, seat: Seat) -> None:
        """Seat the next worker."""
        self.tally.add(self._pairs(seat) or ())
        self.seats.append(seat)
        self.used[seat.node] = self.used.get(seat.node, frozenset()) | frozenset(seat.gpus)

    def cheapest(self, options: Iterator[Seat]) -> Seat | None:
        """The best seat for the next worker: slowest path, traffic, busiest link, nodes, hops, leaves; None: none."""
        ranked = [(key, seat) for seat in options if (key := self._key(seat)) is not None]
        if not ranked:
            return None
        least = min(key for key, _ in ranked)
        tied = sorted(seat for key, seat in ranked if key == least)[:_MOST_TIES]
        return tied[0] if len(tied) == 1 else min((*self._further_key(seat), seat) for seat in tied)[-1]

    def _pairs(self, seat: Seat) -> list[Met] | None:
        return pairs_with(self.workers, len(self.seats), seat, self.seats, self.prices)

    def _key(self, seat: Seat) -> tuple[bool, int, int, int, float] | None:
        """What seats are compared by, the least first; None where it may not meet who is seated, or no path joins them.

        Split, slowest path, traffic, way from the stage before; then, while nobody is seated to whom its KV goes or
        from whom it comes, how fast its ports are.
        """
        met = self._pairs(seat)
        if met is None:
            return None
        pairs = [price for price, _ in met]
        begins = not any(price.loads for price in pairs) and self.workers[len(self.seats)].role != Role.AGGREGATED
        fastest = self.ground.port_gb_per_s(seat) if begins else 0.0
        slowest = max([self.tally.slowest_ns, *(price.slowest_ns for price in pairs)])
        traffic, between = sum(price.traffic_ns for price in pairs), sum(price.between_ns for price in pairs)
        return self.ground.is_split(seat), slowest, traffic, between, -fastest

    def _further_key(self, seat: Seat) -> tuple[int, bool, int, bool]:
        pairs = self._pairs(seat) or []
        slowest, busiest = self.tally.slowest_ns, self.tally.busiest_ns
        self.tally.add(pairs)
        reached = self.tally.busiest_ns
        self.tally.drop(pairs, slowest_ns=slowest, busiest_ns=busiest)
        leaves = {self.ground.leaf_of[node] for node in self.used}
        away = self.ground.leaf_of[seat.node] not in leaves
        return reached, seat.node not in self.used, sum(price.hops for price, _ in pairs), away
