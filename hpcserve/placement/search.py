"""The best seats for all workers: branch and bound, exact where it ends within its limit.

What is best, in this order: the slowest path from a prefill to a decode worker as fast as possible; the least traffic,
which is what all links together need for one handover of every pair; the fastest ways from each pipeline stage to the
next; the busiest link as little busy as possible; few nodes; few hops; few leaves; the first seats in the order of the
fabric's parts. (Where a site lets a worker's ranks
spread over NVLink islands, as few such workers as possible goes before all.) The last makes the answer unique, so that
a search among the chosen nodes alone gives the same answer.

Exact: all seatings are considered but for those that only exchange what is alike (`Ground`), and those that a lower
bound rules out. After `LIMIT` steps the search stops; the best seating found, from greedy beginnings and from moving
and swapping workers, stands, never worse than filling the nodes in order, and `Bound` says how far it can be from the
best.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from hpcserve.nouns import Role
from hpcserve.placement.bound import Bound, bound_of
from hpcserve.placement.candidate import Seat
from hpcserve.placement.demand import StageOf, Wanted
from hpcserve.placement.fast_ports import fast_ground, fastest_for_all, moved_to
from hpcserve.placement.ground import Ground
from hpcserve.placement.improve import improved
from hpcserve.placement.price import Prices
from hpcserve.placement.starts import begun
from hpcserve.placement.tally import Cost, Seating, Tally, cost_of, pairs_with

__all__ = ["LIMIT", "Found", "Search"]

LIMIT = 150_000
"""Pairs of ranks looked at before the search gives up proving: some tenths of a second."""

_LESS = 5
"""Only so small a part of that where path and traffic are the least possible already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A seat for each stage of each worker, and the cost; `exact`: all others were looked at or ruled out."""

    seats: Mapping[StageOf, Seat]
    cost: Cost
    bound: Bound
    exact: bool


class Search:
    """One placement problem: workers' stages in the order in which they are seated, the ground, the prices of pairs."""

    def __init__(self, workers: Sequence[Wanted], ground: Ground, prices: Prices, *, limit: int = LIMIT) -> None:
        self.workers = _in_turn(workers)
        self.ground = ground
        self._prices = prices
        self._limit = limit
        self._tried = 0
        self._best: tuple[Cost, Seating] | None = None
        self._most_gpus = max((len(candidate.gpus) for candidate in ground.candidates), default=0)
        self._bound = bound_of(self.workers, ground, prices)
        self._pairs_left = _pairs_left(self.workers)
        self._boundaries_left = _boundaries_left(self.workers)

    def best(self, seedings: Sequence[Mapping[StageOf, Seat]] = ()) -> Found | None:
        """The best seating; None where none was found, and none exists unless the search is `exhausted`.

        The first seeding stands where nothing costs less.
        """
        for seeding in seedings:
            self._offer(tuple(seeding[worker.key] for worker in self.workers))
        for seating in begun(self.workers, self.ground, self._prices):
            self._offer(seating)
        self._begin_fast()
        self._improve()
        exact = self._descend() and not self.ground.is_rough
        if not exact:
            self._improve()
        if self._best is None:
            return None
        cost, seating = self._best
        seats = {worker.key: seat for worker, seat in zip(self.workers, seating, strict=True)}
        return Found(seats=seats, cost=cost, bound=self._bound, exact=exact)

    def cost(self, seats: Mapping[StageOf, Seat]) -> Cost | None:
        """The cost of any seating; None where it is none."""
        seating = tuple(seats[worker.key] for worker in self.workers)
        return cost_of(self.workers, seating, self.ground, self._prices)

    @property
    def exhausted(self) -> bool:
        """Whether the limit ended the search, or it did not look at all that can be told apart."""
        return self._tried > self._limit or self.ground.is_rough

    def _begin_fast(self) -> None:
        """Greedy seatings on the GPUs that all are fast enough for the fastest slowest path."""
        rate = fastest_for_all(self.workers, self.ground)
        if rate is None or not self._pairs_left[0]:
            return
        fast = fast_ground(self.ground, rate, workers=len(self.workers))
        for seating in begun(self.workers, fast, self._prices.on(fast)):
            self._offer(moved_to(self.ground, seating, fast))

    def _is_least(self) -> bool:
        """Whether path, traffic and the ways between stages of the best seating are the least possible."""
        least = (self._bound.slowest_ns, self._bound.traffic_ns, self._boundaries_left[0] * self._bound.between_ns)
        return self._best is not None and self._bound.of_paths and self._best[0][1:4] == least

    def _improve(self) -> None:
        """Change the best seating where that may help."""
        if self._best is not None and not self._is_least():
            self._offer(improved(self.workers, *self._best, self.ground, self._prices))

    def _offer(self, seating: Seating | None) -> None:
        """Keep a seating if it is the best so far, its interchangeable workers in order."""
        if seating is None:
            return
        seating = self._in_order(seating)
        cost = cost_of(self.workers, seating, self.ground, self._prices)
        if cost is not None and (self._best is None or (cost, seating) < self._best):
            self._best = (cost, seating)

    def _in_order(self, seating: Seating) -> Seating:
        pools: dict[int, dict[str, list[Seat]]] = {}
        for worker, seat in zip(self.workers, seating, strict=True):
            pools.setdefault(worker.pool, {}).setdefault(worker.id, []).append(seat)
        ordered = {
            key: seats
            for workers in pools.values()
            for key, seats in zip(workers, sorted(workers.values()), strict=True)
        }
        return tuple(ordered[worker.id][worker.stage] for worker in self.workers)

    def _descend(self) -> bool:
        """Depth first through all seatings; whether all were ruled out or seen."""
        count = len(self.workers)
        limit = self._limit // (_LESS if self._is_least() else 1)
        trail: list[Seat] = []
        used: dict[int, frozenset[int]] = {}
        tally = Tally()
        undo: list[tuple[int, int]] = []
        levels: list[Iterator[Seat]] = [self._choices(0, trail, used)]

        def back() -> None:
            seat = trail.pop()
            left = used[seat.node] - frozenset(seat.gpus)
            if left:
                used[seat.node] = left
            else:
                del used[seat.node]
            pairs = pairs_with(self.workers, len(trail), seat, trail, self._prices)
            slowest_ns, busiest_ns = undo.pop()
            tally.drop(pairs or (), slowest_ns=slowest_ns, busiest_ns=busiest_ns)

        while levels:
            seat = next(levels[-1], None)
            if seat is None:
                levels.pop()
                if trail:
                    back()
                continue
            self._tried += 1 + len(trail) * len(seat.gpus)
            if self._tried > limit:
                return False
            pairs = pairs_with(self.workers, len(trail), seat, trail, self._prices)
            if pairs is None:
                continue
            undo.append((tally.slowest_ns, tally.busiest_ns))
            tally.add(pairs)
            trail.append(seat)
            used[seat.node] = used.get(seat.node, frozenset()) | frozenset(seat.gpus)
            if self._is_hopeless(trail, used, tally):
                back()
            elif len(trail) == count:
                self._offer(tuple(trail))
                back()
            else:
                levels.append(self._choices(len(trail), trail, used))
        return True

    def _is_hopeless(self, trail: Sequence[Seat], used: Mapping[int, frozenset[int]], tally: Tally) -> bool:
        """Whether no completion of `trail` can be better than the best."""
        if self._best is None:
            return False
        bound, step = self._bound, len(trail)
        best_cost, best_seating = self._best
        left = self._pairs_left[step]
        split = sum(self.ground.is_split(seat) for seat in trail) if best_cost[0] else 0
        slowest = max(tally.slowest_ns, bound.slowest_ns)
        traffic = max(tally.traffic_ns + left * bound.pair_traffic_ns, bound.traffic_ns)
        between = tally.between_ns + self._boundaries_left[step] * bound.between_ns
        if (split, slowest, traffic, between) != best_cost[:4]:
            return (split, slowest, traffic, between) > best_cost[:4]
        free = sum(len(self.ground.candidates[node].gpus) - len(gpus) for node, gpus in used.items())
        short = sum(worker.tensor_parallel for worker in self.workers[step:]) - free
        reached: Cost = (
            split,
            slowest,
            traffic,
            between,
            max(tally.busiest_ns, bound.busiest_ns),
            max(len(used) - (-max(0, short) // self._most_gpus), bound.nodes),
            max(tally.hops + left * bound.pair_hops, bound.hops),
            len({self.ground.leaf_of[node] for node in used}),
        )
        return (reached, tuple(trail)) > (best_cost, best_seating[:step])

    def _choices(self, index: int, trail: Sequence[Seat], used: Mapping[int, frozenset[int]]) -> Iterator[Seat]:
        """Seats for the worker stage `index`, lowest first; those of one pool's first stages go up."""
        worker = self.workers[index]
        seated = list(zip(self.workers, trail, strict=False))
        floor = None
        if not worker.stage:
            firsts = (seat for other, seat in reversed(seated) if other.pool == worker.pool and not other.stage)
            floor = next(firsts, None)
        used = dict(used)
        for node in self.ground.openings(used):
            if self.ground.candidates[node].partition != worker.partition:
                continue
            for seat in self.ground.seats(node, used, worker.tensor_parallel):
                if floor is None or seat > floor:
                    yield seat


def _pairs_left(workers: Sequence[Wanted]) -> tuple[int, ...]:
    """For every number of seated stages how many pairs are still to come."""
    seen: Counter[tuple[Role, int]] = Counter()
    made, counts = 0, [0]
    other = {Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL}
    for worker in workers:
        made += seen[other[worker.role], worker.stage] if worker.role in other else 0
        seen[worker.role, worker.stage] += 1
        counts.append(made)
    return tuple(made - count for count in counts)


def _boundaries_left(workers: Sequence[Wanted]) -> tuple[int, ...]:
    """For every number of seated stages how many are still to come that have one before them."""
    left = [0]
    for worker in reversed(workers):
        left.append(left[-1] + (worker.stage > 0))
    return tuple(reversed(left))


def _in_turn(workers: Sequence[Wanted]) -> tuple[Wanted, ...]:
    """Where there are pairs, all first stages, then all second ones: those that meet are seated together.

    Aggregated workers one after the other, with their stages.
    """
    if all(worker.role == Role.AGGREGATED for worker in workers):
        return tuple(workers)
    stages = sorted({worker.stage for worker in workers})
    return tuple(chain.from_iterable(_alternating([one for one in workers if one.stage == at]) for at in stages))


def _alternating(workers: Sequence[Wanted]) -> tuple[Wanted, ...]:
    """Prefill and decode workers in turn: their paths are known early, and bad seatings end early."""
    decode = [worker for worker in workers if worker.role == Role.DECODE]
    others = [worker for worker in workers if worker.role != Role.DECODE]
    pairs = [worker for pair in zip(others, decode, strict=False) for worker in pair]
    both = min(len(others), len(decode))
    return (*pairs, *others[both:], *decode[both:])
