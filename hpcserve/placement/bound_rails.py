"""The least traffic where each rail has a leaf of its own: not all pairs can be in one node or on equal rails.

A handover between two nodes costs less the more of its ranks leave and arrive on the same rail. On one rail each node
has one GPU, of a prefill or of a decode worker: `n` nodes give a rail x ≤ n ranks, so at most x² / 4 meet there. The
fewer nodes, the more pairs are inside one. For every number of nodes what is best in both is a bound; the least over
all numbers is one for any seating.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import ceil

from hpcserve.placement.candidate import Seat
from hpcserve.placement.ground import Ground
from hpcserve.placement.price import PairPrice

__all__ = ["Priced", "least_traffic_on_rails"]

Priced = tuple[Seat, Seat, PairPrice]


def least_traffic_on_rails(
    prefill: Sequence[int], decode: Sequence[int], ground: Ground, pairs: Iterable[Priced]
) -> int:
    """Nanoseconds of traffic, given the ranks of all workers and every pair of seats that can be told apart.

    0, which says nothing, where ranks differ, a node has several GPUs on a rail, or rails are not joined.
    """
    ranks = {*prefill, *decode}
    if len(ranks) > 1 or not ground.gpus.has_one_a_rail:
        return 0
    size = ranks.pop()
    inside: list[int] = []
    least: dict[int, int] = {}
    for seat, other, price in pairs:
        if seat.node == other.node:
            inside.append(price.traffic_ns)
            continue
        met = ground.gpus.meetings(seat, other)
        least[met] = min(price.traffic_ns, least.get(met, price.traffic_ns))
    if 0 not in least:
        return 0
    apart = least[0]
    saved = max([Fraction(0), *(Fraction(apart - ns, met) for met, ns in least.items() if met)])
    workers, count = len(prefill) + len(decode), len(prefill) * len(decode)
    slots = max(len(candidate.gpus) // size for candidate in ground.candidates)
    bounds: list[Fraction] = []
    for nodes in range(-(-workers // slots), min(workers, len(ground.candidates)) + 1):
        most_inside = min(count, _most_inside(workers, nodes, slots)) if inside else 0
        met = size * _most_meetings(workers, nodes)
        turn = count - met // size  # with more pairs inside, all others can be on equal rails
        for chosen in {0, most_inside, *(one for one in (turn, turn + 1) if 0 <= one <= most_inside)}:
            others = count - chosen
            bounds.append(chosen * min(inside, default=0) + others * apart - saved * min(met, size * others))
    return max(0, ceil(min(bounds, default=Fraction(0))))


def _most_inside(workers: int, nodes: int, slots: int) -> int:
    """Most pairs within nodes: as many full nodes as leave a worker for each other node."""
    if slots == 1:
        return 0
    full, rest = divmod(workers - nodes, slots - 1)
    return full * (slots * slots // 4) + (rest + 1) ** 2 // 4


def _most_meetings(workers: int, nodes: int) -> int:
    """Most pairs of one rank of prefill and decode on equal rails: as many full rails as the workers fill."""
    full, rest = divmod(workers, nodes)
    return full * (nodes * nodes // 4) + rest * rest // 4
