"""The cost of a seating, added up pair by pair."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hpcserve.nouns import Role
from hpcserve.placement.candidate import Seat
from hpcserve.placement.demand import Wanted
from hpcserve.placement.ground import Ground
from hpcserve.placement.price import PairPrice, Prices

__all__ = ["Cost", "Met", "Seating", "Tally", "cost_of", "pairs_with"]

Seating = tuple[Seat, ...]
Cost = tuple[int, int, int, int, int, int, int, int]
"""What is compared, less is better, in this order:

workers split over NVLink islands; nanoseconds of the slowest path; of all links together (traffic); of a megabyte from
each stage to the next; of the busiest link, each pair handing over once; nodes; hops; leaves (or sets of rail leaves).
"""
Met = tuple[PairPrice, tuple[str, str] | None]
"""A price and, where workers have several stages, whose handover it is a part of: the stages of a pair hand over at
once, and a link that several of them pass takes the time of all."""


@dataclass(slots=True)
class Tally:
    """What the pairs so far add up to."""

    slowest_ns: int = 0
    traffic_ns: int = 0
    between_ns: int = 0
    busiest_ns: int = 0
    hops: int = 0
    loads: dict[str, int] = field(default_factory=dict)
    joint: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """The same of one pair of workers, whose stages hand over together."""

    def add(self, met: Iterable[Met]) -> None:
        """Take pairs in."""
        loads, busiest = self.loads, self.busiest_ns
        for price, pair in met:
            self.slowest_ns = max(self.slowest_ns, price.slowest_ns)
            self.traffic_ns += price.traffic_ns
            self.between_ns += price.between_ns
            self.hops += price.hops
            if pair is not None:
                self.slowest_ns = max(self.slowest_ns, self._joined(pair, price))
            for link, ns in price.loads:
                load = loads.get(link, 0) + ns
                loads[link] = load
                if load > busiest:  # noqa: PLR1730 - max() takes four times as long, in the innermost loop
                    busiest = load
        self.busiest_ns = busiest

    def drop(self, met: Iterable[Met], *, slowest_ns: int, busiest_ns: int) -> None:
        """Take back the pairs that were added last; slowest and busiest are what they were before."""
        for price, pair in met:
            self.traffic_ns -= price.traffic_ns
            self.between_ns -= price.between_ns
            self.hops -= price.hops
            for link, ns in price.loads:
                self.loads[link] -= ns
                if pair is not None:
                    self.joint[pair][link] -= ns
        self.slowest_ns, self.busiest_ns = slowest_ns, busiest_ns

    def _joined(self, pair: tuple[str, str], price: PairPrice) -> int:
        """What the slowest link needs that this stage of a pair's handover passes, with the stages before it."""
        loads = self.joint.setdefault(pair, {})
        for link, ns in price.loads:
            loads[link] = loads.get(link, 0) + ns
        return max((loads[link] for link, _ in price.loads), default=0)


def pairs_with(
    workers: Sequence[Wanted], index: int, seat: Seat, seated: Sequence[Seat], prices: Prices
) -> list[Met] | None:
    """The pairs that worker stage `index` on `seat` makes with those seated before it; None where one may not be.

    A prefill and a decode stage meet where they have the same layers; each stage meets the one before it.
    """
    me = workers[index]
    if me.role == Role.AGGREGATED and not me.stage:
        return []
    found: list[Met] = []
    for other, other_seat in zip(workers, seated, strict=False):
        pair = None
        if other.role == me.role:
            if other.id != me.id or other.stage != me.stage - 1:
                continue
            price = prices.between(other_seat, seat)
        elif other.stage != me.stage:
            continue
        else:
            prefills = me.role == Role.PREFILL
            price = prices(seat, other_seat, me.stage) if prefills else prices(other_seat, seat, me.stage)
            if me.stages > 1:
                pair = (me.id, other.id) if prefills else (other.id, me.id)
        if price is None:
            return None
        found.append((price, pair))
    return found


def cost_of(workers: Sequence[Wanted], seating: Seating, ground: Ground, prices: Prices) -> Cost | None:
    """The cost of a seating; None where a pair may not be so placed, or GPUs are taken twice."""
    taken = [(seat.node, gpu) for seat in seating for gpu in seat.gpus]
    if len(set(taken)) < len(taken):
        return None
    tally = Tally()
    for index, seat in enumerate(seating):
        pairs = pairs_with(workers, index, seat, seating[:index], prices)
        if pairs is None:
            return None
        tally.add(pairs)
    nodes = {seat.node for seat in seating}
    split = sum(ground.is_split(seat) for seat in seating)
    leaves = len({ground.leaf_of[node] for node in nodes})
    ns = tally.slowest_ns, tally.traffic_ns, tally.between_ns, tally.busiest_ns
    return split, *ns, len(nodes), tally.hops, leaves
