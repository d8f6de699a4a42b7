"""Where GPUs reach their leaves at unlike rates: how fast all workers can be, and the ground of those GPUs alone.

The slowest path goes before all else, and a worker with one slow NIC makes every path to other nodes slow.
"""

from collections.abc import Sequence
from dataclasses import replace

from hpcserve.placement.candidate import Seat, areas_of
from hpcserve.placement.demand import Wanted
from hpcserve.placement.ground import Ground

__all__ = ["fast_ground", "fastest_for_all", "moved_to"]


def fastest_for_all(workers: Sequence[Wanted], ground: Ground) -> float | None:
    """The highest rate at which, by number, all workers find GPUs that reach their leaves so fast; None: any GPU does.

    Every assignment has a worker with a GPU that is no faster than this.
    """
    rates = sorted({rate for own in _ports(ground) for rate in own.values()})
    low, high = 0, len(rates) - 1
    while low < high:
        middle = (low + high + 1) // 2
        if _have_room(workers, ground, rates[middle]):
            low = middle
        else:
            high = middle - 1
    return rates[low] if low else None


def fast_ground(ground: Ground, rate: float, *, workers: int) -> Ground:
    """The ground with only the GPUs that are at least so fast."""
    kept = [
        replace(candidate, gpus=tuple(gpu for gpu in candidate.gpus if own[gpu] >= rate))
        for candidate, own in zip(ground.candidates, _ports(ground), strict=True)
    ]
    return Ground(ground.fabric, kept, workers=workers, chains=ground.chains, roughly=ground.is_rough)


def moved_to(ground: Ground, seating: Sequence[Seat], fast: Ground) -> tuple[Seat, ...]:
    """A seating on the fast ground as one on the whole."""
    return tuple(Seat(ground.numbers[fast.candidates[seat.node].name], seat.gpus) for seat in seating)


def _ports(ground: Ground) -> list[dict[int, float]]:
    return [
        {gpu: ground.port_gb_per_s(Seat(number, (gpu,))) for gpu in candidate.gpus}
        for number, candidate in enumerate(ground.candidates)
    ]


def _have_room(workers: Sequence[Wanted], ground: Ground, rate: float) -> bool:
    """Whether each partition has enough fast GPUs for its workers, and for as many as have so many ranks together."""
    rooms: dict[str | None, list[int]] = {}
    for candidate, own in zip(ground.candidates, _ports(ground), strict=True):
        rooms.setdefault(candidate.partition, []).extend(
            sum(own[gpu] >= rate for gpu in area) for area in areas_of(ground.fabric, candidate)
        )
    for partition in {worker.partition for worker in workers}:
        sizes = [worker.tensor_parallel for worker in workers if worker.partition == partition]
        there = rooms.get(partition, [])
        if sum(there) < sum(sizes):
            return False
        if any(sum(room // ranks for room in there) < sum(one >= ranks for one in sizes) for ranks in set(sizes)):
            return False
    return True
