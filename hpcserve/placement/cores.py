"""Which cores of its node each worker gets."""

from collections.abc import Iterator, Mapping, Sequence

from hpcserve.placement.candidate import Seat
from hpcserve.placement.demand import StageOf
from hpcserve.placement.ground import Ground

__all__ = ["cores_by_worker"]


def cores_by_worker(seats: Mapping[StageOf, Seat], ground: Ground) -> dict[StageOf, tuple[int, ...]]:
    """The cores of each worker's stage, by their numbers: those nearest to its GPUs, as far as the site knows them.

    Workers of a node divide its cores by their GPUs, in the order of these. Where there are fewer cores than GPUs in
    use, all workers of the node get all of them.
    """
    found: dict[StageOf, tuple[int, ...]] = {}
    for node in {seat.node: None for seat in seats.values()}:
        here = sorted(((seat, worker) for worker, seat in seats.items() if seat.node == node), key=lambda one: one[0])
        gpus = {worker: seat.gpus for seat, worker in here}
        candidate = ground.candidates[node]
        if len(candidate.cores) < sum(map(len, gpus.values())):
            found |= dict.fromkeys(gpus, candidate.cores)
            continue
        near = ground.fabric.node_type(candidate.name).gpu.cpus
        divided = _near(gpus, [frozenset(_numbers(text)) for text in near], candidate.cores) if near else {}
        found |= divided if divided and all(divided.values()) else _shares(gpus, candidate.cores)
    return found


def _near(
    gpus: Mapping[StageOf, Sequence[int]], near: Sequence[frozenset[int]], cores: Sequence[int]
) -> dict[StageOf, tuple[int, ...]]:
    """Each group of cores among the workers with GPUs near it; cores near nobody's GPU among all."""
    got: dict[StageOf, list[int]] = {worker: [] for worker in gpus}
    left = list(cores)
    for group in dict.fromkeys(near[gpu] for own in gpus.values() for gpu in own if gpu < len(near)):
        inside = [core for core in left if core in group]
        left = [core for core in left if core not in group]
        users = {worker: [gpu for gpu in own if gpu < len(near) and near[gpu] == group] for worker, own in gpus.items()}
        for worker, share in _shares({worker: own for worker, own in users.items() if own}, inside).items():
            got[worker] += share
    for worker, share in _shares(gpus, left).items():
        got[worker] += share
    return {worker: tuple(sorted(share)) for worker, share in got.items()}


def _shares(gpus: Mapping[StageOf, Sequence[int]], cores: Sequence[int]) -> dict[StageOf, tuple[int, ...]]:
    """Cores divided by the number of GPUs, one run of them for each worker."""
    count = sum(map(len, gpus.values()))
    shares: dict[StageOf, tuple[int, ...]] = {}
    before = 0
    for worker, own in gpus.items():
        after = before + len(own)
        shares[worker] = tuple(cores[len(cores) * before // count : len(cores) * after // count])
        before = after
    return shares


def _numbers(text: str) -> Iterator[int]:
    """The CPUs of a list, `0-3,8`."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
