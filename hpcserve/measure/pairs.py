"""Which pairs of seats are measured, and which flows together fill a link."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, GpuAt
from hpcserve.measure.errand import Flow, Seat, Task

__all__ = ["MOST_SEATS_FOR_EVERY_PAIR", "at", "links_of", "pairs_of", "uplink_tasks"]

MOST_SEATS_FOR_EVERY_PAIR = 16
"""240 reads in some 20 rounds: a minute. Above it, one pair stands for its like."""


def pairs_of(seats: Sequence[Seat], fabric: Fabric) -> tuple[tuple[Flow, ...], str]:
    """The pairs to measure, each in both directions, and in words which ones they are.

    On large sites every seat reads from its neighbour under the same leaf, so that each node and each cable is measured
    both ways, and one seat of each leaf from one of the next leaf.
    """
    every = len(seats) <= MOST_SEATS_FOR_EVERY_PAIR
    chosen = _round_robin(len(seats)) if every else _representatives(seats, fabric)
    flows = tuple(flow for flow in chosen if _is_joined(seats, flow, fabric))
    scope = (
        "every pair"
        if every
        else "each NIC with its neighbour under the same leaf, and one pair from each leaf to the next"
    )
    return flows, scope


def uplink_tasks(seats: Sequence[Seat], fabric: Fabric) -> tuple[Task, ...]:
    """For each link that several seats share: reads from and to different seats that all pass it, at the same time.

    As many as have seats of their own at both ends, so that the link is asked for all that its side can send.
    """
    through: dict[str, list[Flow]] = defaultdict(list)
    for flow in _leaf_to_leaf(seats, fabric):
        if _is_joined(seats, flow, fabric):
            for link in links_of(seats, flow, fabric):
                through[link].append(flow)
    tasks: dict[tuple[Flow, ...], Task] = {}
    for flows in through.values():
        together = _apart(flows)
        if len(together) > 1 and together not in tasks:
            shared = set.intersection(*(set(links_of(seats, flow, fabric)) for flow in together))
            ordered = [link for link in links_of(seats, together[0], fabric) if link in shared]
            tasks[together] = Task(flows=together, links=tuple(ordered))
    return tuple(tasks.values())


def links_of(seats: Sequence[Seat], flow: Flow, fabric: Fabric) -> tuple[str, ...]:
    """Names of the links that a flow passes, from its source to its reader."""
    return tuple(link.name for link in fabric.links(at(seats[flow.source]), at(seats[flow.reader])))


def at(seat: Seat) -> GpuAt:
    """Where the fabric finds a seat."""
    return GpuAt(seat.node, seat.gpu)


def _round_robin(count: int) -> Iterator[Flow]:
    for step in range(1, count):
        for source in range(count):
            yield Flow(source=source, reader=(source + step) % count)


def _representatives(seats: Sequence[Seat], fabric: Fabric) -> Iterator[Flow]:
    groups = _by_leaf(seats, fabric)
    for group in groups:
        yield from _ring(group)
        yield from (Flow(source=flow.reader, reader=flow.source) for flow in _ring(group) if len(group) > 2)  # noqa: PLR2004 - a ring of two is both directions already
    yield from _ring([group[0] for group in groups])


def _ring(members: Sequence[int]) -> Iterator[Flow]:
    if len(members) > 1:
        for place, source in enumerate(members):
            yield Flow(source=source, reader=members[(place + 1) % len(members)])


def _leaf_to_leaf(seats: Sequence[Seat], fabric: Fabric) -> Iterator[Flow]:
    """From each seat to the one in the same place of each other leaf, the next leaf first."""
    groups = _by_leaf(seats, fabric)
    few = len(seats) <= MOST_SEATS_FOR_EVERY_PAIR
    for step in range(1, len(groups) if few else min(2, len(groups))):
        for number, group in enumerate(groups):
            other = groups[(number + step) % len(groups)]
            for source, reader in zip(group, other, strict=False):
                yield Flow(source=source, reader=reader)


def _by_leaf(seats: Sequence[Seat], fabric: Fabric) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for number, seat in enumerate(seats):
        groups.setdefault(fabric.leaf_of(seat.node), []).append(number)
    return list(groups.values())


def _apart(flows: Iterable[Flow]) -> tuple[Flow, ...]:
    """Of the flows, in order, those that share no end with one before."""
    used: set[int] = set()
    kept = []
    for flow in flows:
        if flow.source not in used and flow.reader not in used:
            used |= {flow.source, flow.reader}
            kept.append(flow)
    return tuple(kept)


def _is_joined(seats: Sequence[Seat], flow: Flow, fabric: Fabric) -> bool:
    """Whether the site has a path for it at all; NICs of one node are no path through the fabric."""
    source, reader = seats[flow.source], seats[flow.reader]
    if source.node == reader.node:
        return False
    try:
        fabric.links(at(source), at(reader))
    except PlacementError:
        return False
    return True
