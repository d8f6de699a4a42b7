"""The best seats for all workers: branch and bound, exact where it ends within its limit.

What is best, in this order: no worker whose ranks are spread over NVLink islands needlessly; the slowest path from a
prefill to a decode worker as fast as possible; the sum over all such paths; few nodes; the first seats in order. The
last makes the answer unique, so that a search among the chosen nodes alone gives the same answer.

Exact: all seatings are considered but for those that only exchange what is interchangeable (`Ground`), and those that a
lower bound rules out. After `LIMIT` steps the search stops; the best seating found, from greedy fillings and from
moving single workers, stands, and it is never worse than filling the nodes in order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpcserve.nouns import Role
from hpcserve.placement.demand import Wanted
from hpcserve.placement.ground import Ground, Region, Seat

__all__ = ["LIMIT", "Found", "Search", "Seating"]

LIMIT = 500_000
"""Pairs of workers looked at before the search gives up proving: one or two seconds."""

_MOST_WORKERS_GREEDY = 64
"""Greedy filling looks at all pairs for every seat; with more workers filling in order has to do."""

Seating = tuple[Seat, ...]
Key = tuple[int, int, int, int, Seating]
Price = Callable[[Seat, Seat], int | None]
"""Nanoseconds from a prefill worker's seat to a decode worker's; None where they may not be so placed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A seating by worker id; `exact` says that no better one exists."""

    seats: Mapping[str, Seat]
    exact: bool
    tried: int


class Search:
    """One placement problem: workers in the order in which they are seated, the ground, the price of a pair."""

    def __init__(self, workers: Sequence[Wanted], ground: Ground, price: Price, *, limit: int = LIMIT) -> None:
        self.workers = _alternating(workers)
        self.ground = ground
        self._price = price
        self._prices: dict[tuple[Seat, Seat], int | None] = {}
        self._limit = limit
        self._tried = 0
        self._best: Key | None = None
        self._most_gpus = max((len(candidate.gpus) for candidate in ground.candidates), default=0)
        self._least_max, self._least_sum = self._bounds()

    def best(self, seedings: Sequence[Mapping[str, Seat]] = ()) -> Found | None:
        """The best seating; None where none was found, and none exists unless the search is `exhausted`."""
        for seeding in seedings:
            self._offer(tuple(seeding[worker.id] for worker in self.workers))
        for region in self.ground.regions():
            self._offer(self._filled(region))
            if len(self.workers) <= _MOST_WORKERS_GREEDY:
                self._offer(self._greedy(region))
        exact = self._descend()
        while not exact and len(self.workers) <= _MOST_WORKERS_GREEDY and self._improved():
            pass
        if self._best is None:
            return None
        seats = {worker.id: seat for worker, seat in zip(self.workers, self._best[4], strict=True)}
        return Found(seats=seats, exact=exact, tried=self._tried)

    @property
    def exhausted(self) -> bool:
        """Whether the limit ended the search."""
        return self._tried > self._limit

    def key(self, seating: Seating) -> Key | None:
        """How good a seating is, less is better; None where a pair may not be so placed or GPUs are taken twice."""
        taken = [(seat.node, gpu) for seat in seating for gpu in seat.gpus]
        if len(set(taken)) < len(taken):
            return None
        slowest, total = 0, 0
        for index in range(len(seating)):
            cost = self._cost_of(index, seating[index], seating[:index])
            if cost is None:
                return None
            slowest, total = max(slowest, cost[0]), total + cost[1]
        split = sum(self.ground.is_split(seat) for seat in seating)
        return split, slowest, total, len({seat.node for seat in seating}), seating

    def _cost_of(self, index: int, seat: Seat, before: Sequence[Seat]) -> tuple[int, int] | None:
        """Slowest and sum of the pairs that the worker `index` makes with those seated before it."""
        me = self.workers[index]
        slowest, total = 0, 0
        for other, other_seat in zip(self.workers, before, strict=False):
            if {me.role, other.role} != {Role.PREFILL, Role.DECODE}:
                continue
            pair = (seat, other_seat) if me.role == Role.PREFILL else (other_seat, seat)
            price = self._priced(*pair)
            if price is None:
                return None
            slowest, total = max(slowest, price), total + price
        return slowest, total

    def _priced(self, seat: Seat, decode_seat: Seat) -> int | None:
        key = (seat, decode_seat)
        if key not in self._prices:
            self._prices[key] = self._price(seat, decode_seat)
        return self._prices[key]

    def _offer(self, seating: Seating | None) -> bool:
        """Keep a seating if it is the best so far, its interchangeable workers in order."""
        if seating is None:
            return False
        key = self.key(self._in_order(seating))
        if key is None or (self._best is not None and key >= self._best):
            return False
        self._best = key
        return True

    def _in_order(self, seating: Seating) -> Seating:
        pools: dict[int, list[Seat]] = {}
        for worker, seat in zip(self.workers, seating, strict=True):
            pools.setdefault(worker.pool, []).append(seat)
        queues = {pool: iter(sorted(seats)) for pool, seats in pools.items()}
        return tuple(next(queues[worker.pool]) for worker in self.workers)

    def _descend(self) -> bool:
        """Depth first through all seatings; whether all were ruled out or seen."""
        count = len(self.workers)
        trail: list[Seat] = []
        sums: list[tuple[int, int, int]] = [(0, 0, 0)]
        levels: list[Iterator[Seat]] = [self._choices(0, trail)]
        while levels:
            seat = next(levels[-1], None)
            if seat is None:
                levels.pop()
                if trail:
                    trail.pop()
                    sums.pop()
                continue
            self._tried += 1 + len(trail)
            if self.exhausted:
                return False
            cost = self._cost_of(len(trail), seat, trail)
            if cost is None:
                continue
            split, slowest, total = sums[-1]
            reached = (split + self.ground.is_split(seat), max(slowest, cost[0]), total + cost[1])
            trail.append(seat)
            if self._hopeless(trail, reached):
                trail.pop()
            elif len(trail) == count:
                self._offer(tuple(trail))
                trail.pop()
            else:
                sums.append(reached)
                levels.append(self._choices(len(trail), trail))
        return True

    def _hopeless(self, trail: Sequence[Seat], reached: tuple[int, int, int]) -> bool:
        """Whether no completion of `trail` can be better than the best."""
        if self._best is None:
            return False
        split, slowest, total = reached
        step = len(trail)
        nodes = {seat.node for seat in trail}
        free = sum(len(self.ground.candidates[node].gpus) for node in nodes) - sum(len(seat.gpus) for seat in trail)
        short = sum(worker.tensor_parallel for worker in self.workers[step:]) - free
        more_nodes = -(-max(0, short) // self._most_gpus)
        bound = (split, max(slowest, self._least_max[step]), total + self._least_sum[step], len(nodes) + more_nodes)
        return (*bound, tuple(trail)) > (*self._best[:4], self._best[4][:step])

    def _choices(self, index: int, trail: Sequence[Seat]) -> Iterator[Seat]:
        """Seats for the worker `index`, lowest first; those of one pool go up."""
        seated = list(zip(self.workers, trail, strict=False))
        peers = (seat for worker, seat in reversed(seated) if worker.pool == self.workers[index].pool)
        return self._open_seats(self.workers[index], tuple(trail), next(peers, None))

    def _open_seats(
        self, worker: Wanted, others: Sequence[Seat], floor: Seat | None, region: frozenset[int] | None = None
    ) -> Iterator[Seat]:
        """Seats that the others leave, alike ones once, above `floor` and in `region` where these are given."""
        used: dict[int, frozenset[int]] = {}
        for seat in others:
            used[seat.node] = used.get(seat.node, frozenset()) | frozenset(seat.gpus)
        for node in self.ground.openings(used):
            if region is None or node in region:
                for seat in self.ground.seats(node, used.get(node, frozenset()), worker.tensor_parallel):
                    if floor is None or seat > floor:
                        yield seat

    def _bounds(self) -> tuple[list[int], list[int]]:
        """For every number of seated workers, the least that the pairs still to come add: slowest, and sum."""
        count = len(self.workers)
        least: dict[tuple[int, int], int] = {}
        slowest, total = [0] * (count + 1), [0] * (count + 1)
        for index in reversed(range(count)):
            slowest[index], total[index] = slowest[index + 1], total[index + 1]
            for other in range(index):
                pair = (self.workers[other], self.workers[index])
                if {worker.role for worker in pair} == {Role.PREFILL, Role.DECODE}:
                    prefill, decode = pair if pair[0].role == Role.PREFILL else pair[::-1]
                    pools = (prefill.pool, decode.pool)
                    if pools not in least:
                        least[pools] = self._least(prefill, decode)
                    cost = least[pools]
                    slowest[index], total[index] = max(slowest[index], cost), total[index] + cost
        return slowest, total

    def _least(self, prefill: Wanted, decode: Wanted) -> int:
        """The least that any pair of two such workers costs, alone on the ground."""
        prices = (
            self._priced(seat, decode_seat)
            for seat in self._open_seats(prefill, (), None)
            for decode_seat in self._open_seats(decode, (seat,), None)
        )
        return min((price for price in prices if price is not None), default=0)

    def _filled(self, region: Region) -> Seating | None:
        """The nodes of a region filled in order, prefill first; None where they do not suffice."""
        seats: dict[str, Seat] = {}
        taken: dict[int, frozenset[int]] = {}
        for worker in sorted(self.workers, key=lambda one: one.role == Role.DECODE):
            for node in region[worker.role == Role.DECODE]:
                choices = self.ground.seats(node, taken.get(node, frozenset()), worker.tensor_parallel)
                if choices:
                    seats[worker.id] = choices[0]
                    taken[node] = taken.get(node, frozenset()) | frozenset(choices[0].gpus)
                    break
            else:
                return None
        return tuple(seats[worker.id] for worker in self.workers)

    def _greedy(self, region: Region) -> Seating | None:
        """Each worker in turn in the seat of a region that is best so far; None where one finds none."""
        seats: list[Seat] = []
        areas = [frozenset(nodes) for nodes in region]
        for index, worker in enumerate(self.workers):
            used = {seat.node for seat in seats}
            ranked = [
                (self.ground.is_split(seat), *cost, seat.node not in used, seat)
                for seat in self._open_seats(worker, seats, None, areas[worker.role == Role.DECODE])
                if (cost := self._cost_of(index, seat, seats)) is not None
            ]
            if not ranked:
                return None
            seats.append(min(ranked)[-1])
        return tuple(seats)

    def _improved(self) -> bool:
        """Move one worker of the best seating to where it helps; whether any could be."""
        if self._best is None:
            return False
        seating = self._best[4]
        for index, worker in enumerate(self.workers):
            others = seating[:index] + seating[index + 1 :]
            for seat in self._open_seats(worker, others, None):
                if self._offer((*seating[:index], seat, *seating[index + 1 :])):
                    return True
        return False


def _alternating(workers: Sequence[Wanted]) -> tuple[Wanted, ...]:
    """Prefill and decode workers in turn: their paths are known early, and bad seatings end early."""
    decode = [worker for worker in workers if worker.role == Role.DECODE]
    others = [worker for worker in workers if worker.role != Role.DECODE]
    pairs = [worker for pair in zip(others, decode, strict=False) for worker in pair]
    both = min(len(others), len(decode))
    return (*pairs, *others[both:], *decode[both:])
