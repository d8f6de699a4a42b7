"""A seating made better by moving one worker's stage, or by swapping two of unlike roles or stages."""

from collections.abc import Iterator, Sequence

from hpcserve.nouns import Role
from hpcserve.placement.candidate import Seat
from hpcserve.placement.demand import Wanted
from hpcserve.placement.ground import Ground
from hpcserve.placement.price import Prices
from hpcserve.placement.starts import open_seats
from hpcserve.placement.tally import Cost, Seating, cost_of

__all__ = ["improved"]

_MOST_PAIRS = 60_000
"""Pairs looked at before a seating is taken as it is: a part of a second."""

_MOST_PRICED = 6_000
"""Pairs that were not priced before, the same: pricing one takes longest."""

_PARTNER = {Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL}


def improved(workers: Sequence[Wanted], cost: Cost, seating: Seating, ground: Ground, prices: Prices) -> Seating:
    """The seating after all changes that lower its cost, or as many as the limit lets be looked for."""
    looked, priced = 0, prices.looked_up
    again = True
    while again:
        again = False
        for changed in _changes(workers, seating, ground):
            looked += 2 * len(workers)
            if looked > _MOST_PAIRS or prices.looked_up - priced > _MOST_PRICED:
                return seating
            if _traffic(workers, changed, seating, prices) > 0:
                continue
            looked += len(workers) ** 2 // 4
            found = cost_of(workers, changed, ground, prices)
            if found is not None and found < cost:
                cost, seating, again = found, changed, True
                break
    return seating


def _changes(workers: Sequence[Wanted], seating: Seating, ground: Ground) -> Iterator[Seating]:
    """Every seating that one move or one swap makes of this one."""
    for index, worker in enumerate(workers):
        used: dict[int, frozenset[int]] = {}
        for other, seat in enumerate(seating):
            if other != index:
                used[seat.node] = used.get(seat.node, frozenset()) | frozenset(seat.gpus)
        for seat in open_seats(ground, used, worker):
            if seat != seating[index]:
                yield (*seating[:index], seat, *seating[index + 1 :])
    for one, worker in enumerate(workers):
        for two in range(one + 1, len(workers)):
            partner = workers[two]
            alike = (worker.tensor_parallel, worker.partition) == (partner.tensor_parallel, partner.partition)
            if alike and (worker.role, worker.stage) != (partner.role, partner.stage):
                swapped = list(seating)
                swapped[one], swapped[two] = swapped[two], swapped[one]
                yield tuple(swapped)


def _traffic(workers: Sequence[Wanted], changed: Seating, seating: Seating, prices: Prices) -> int:
    """What a change adds to the traffic; 1 where it may not be, or makes a path slower than any changed one was."""
    moved = [index for index, seat in enumerate(changed) if seat != seating[index]]
    sums, slowest = [0, 0], [0, 0]
    for index in moved:
        role, stage = workers[index].role, workers[index].stage
        partner = _PARTNER.get(role)
        others = [
            other
            for other, worker in enumerate(workers)
            if worker.role == partner and worker.stage == stage and not (other in moved and other < index)
        ]
        for side, seats in enumerate((seating, changed)):
            for other in others:
                price = prices(*_pair(role, seats[index], seats[other]), stage)
                if price is None:
                    return 1
                sums[side] += price.traffic_ns
                slowest[side] = max(slowest[side], price.slowest_ns)
    if slowest[1] < slowest[0]:
        return 0
    return sums[1] - sums[0]


def _pair(role: Role, seat: Seat, other: Seat) -> tuple[Seat, Seat]:
    return (seat, other) if role == Role.PREFILL else (other, seat)
