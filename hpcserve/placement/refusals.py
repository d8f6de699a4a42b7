"""Why a service cannot be placed: the limit that binds, and what would lift it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, GpuAt
from hpcserve.nouns import Distance, Role
from hpcserve.placement.candidate import Candidate, areas_of
from hpcserve.placement.demand import Wanted

__all__ = ["check_room", "no_seating"]

_NEEDED = {
    Distance.BEST: "it takes a path from every prefill to every decode worker",
    Distance.SAME_NODE: "it takes one node for all of them",
    Distance.SAME_LEAF: "it takes one leaf with prefill and decode on different nodes of it",
    Distance.ACROSS_LEAVES: "it takes joined leaves with prefill under some and decode under the others",
}
_SPREAD = "node_types.NAME.tensor_parallel_across_islands: true"


def check_room(workers: Sequence[Wanted], candidates: Sequence[Candidate], fabric: Fabric, *, where: str) -> None:
    """Raise PlacementError where the nodes have too few GPUs for some worker or for all, whatever is between them.

    `workers`: all their stages.
    """
    largest = max((len(candidate.gpus) for candidate in candidates), default=0)
    if not largest:
        raise PlacementError(f"{where} has no node with a GPU", remedy="choose another partition")
    widest = max(workers, key=lambda worker: worker.tensor_parallel)
    if widest.tensor_parallel > largest:
        raise PlacementError(
            f"tensor_parallel {widest.tensor_parallel} of {widest.id} is more than the {largest} GPUs of the largest "
            f"node of {where}",
            remedy=_wider_than_a_node(widest.tensor_parallel, candidates, fabric),
        )
    rooms = [len(area) for candidate in candidates for area in areas_of(fabric, candidate)]
    if widest.tensor_parallel > max([1, *rooms]):
        raise PlacementError(
            f"tensor_parallel {widest.tensor_parallel} of {widest.id} is more than the {max([1, *rooms])} GPUs of the "
            f"largest NVLink island of {where}",
            remedy=f"lower tensor_parallel, or say in the site that ranks may be spread over islands: {_SPREAD}",
        )
    needed = sum(worker.tensor_parallel for worker in workers)
    there = sum(len(candidate.gpus) for candidate in candidates)
    if needed > there:
        raise PlacementError(
            f"{_count(workers)} workers need {needed} GPUs, and {where} has {there} ({len(candidates)} nodes)",
            remedy=f"ask for fewer workers or less {_parallelism(workers)}, or use a larger partition",
        )
    for ranks in sorted({worker.tensor_parallel for worker in workers if worker.tensor_parallel > 1}):
        wide = sum(worker.tensor_parallel >= ranks for worker in workers)
        room = sum(size // ranks for size in rooms)
        if wide > room:
            raise PlacementError(
                f"{wide} {_each(workers)}s have tensor_parallel {ranks} or more, and {where} has room for {room} such: "
                f"a {_each(workers)}'s ranks stay in one node, and in one NVLink island where there are any",
                remedy=f"ask for fewer workers or less {_parallelism(workers)}, or use a larger partition",
            )


def _count(stages: Sequence[Wanted]) -> int:
    return len({one.id for one in stages})


def _each(stages: Sequence[Wanted]) -> str:
    """What is placed by itself."""
    return "stage" if any(one.stages > 1 for one in stages) else "worker"


def _parallelism(stages: Sequence[Wanted]) -> str:
    """The keys of the service that say how many GPUs a worker has."""
    return "tensor_parallel" + (" or pipeline_parallel" if any(one.stages > 1 for one in stages) else "")


def _wider_than_a_node(ranks: int, candidates: Sequence[Candidate], fabric: Fabric) -> str:
    """What to do; where an NVLink domain has the GPUs, that it is no help yet."""
    rooms: dict[str, int] = {}
    for candidate in candidates:
        domain = fabric.domain_of(candidate.name)
        if domain is not None:
            rooms[domain.name] = rooms.get(domain.name, 0) + len(candidate.gpus)
    large = next((name for name, room in rooms.items() if room >= ranks), None)
    domain_text = f" (NVLink domain {large} is large enough, but an engine is started on one node)" if large else ""
    return f"a worker's ranks stay in one node: lower tensor_parallel, or choose larger nodes{domain_text}"


def no_seating(
    workers: Sequence[Wanted],
    candidates: Sequence[Candidate],
    fabric: Fabric,
    distance: Distance,
    *,
    where: str,
    exhausted: bool,
) -> PlacementError:
    """The error for workers that fit by number and still have no seats; `exhausted`: the search gave up looking."""
    needed = sum(worker.tensor_parallel for worker in workers)
    limit = _limit_of_distance(workers, candidates, fabric, distance, where=where)
    if limit is not None:
        reason, remedy = limit
        return PlacementError(_asked(distance) + reason, remedy=remedy)
    if exhausted:
        return PlacementError(
            f"{_asked(distance)}no placement was found on {where} before the search gave up",
            remedy=f"use fewer workers{_or_best(distance)}",
        )
    unjoined = next(_unjoined(candidates, fabric), None)
    if unjoined is not None:
        return PlacementError(
            f"{_asked(distance)}{_count(workers)} workers find no seats on {where} with a path from every prefill to "
            f"every decode worker: {unjoined.message}",
            remedy=unjoined.remedy,
        )
    return PlacementError(
        f"{_asked(distance)}{_count(workers)} workers with {needed} ranks find no seats on {where}: "
        f"{_NEEDED[distance]}, and each {_each(workers)}'s ranks in one node",
        remedy=f"use fewer workers or another tensor_parallel{_or_best(distance)}",
    )


def _asked(distance: Distance) -> str:
    """How a refusal begins: with the key of the service that binds; nothing where the service asks for no distance."""
    return "" if distance == Distance.BEST else f"`distance: {distance}`: "


def _or_best(distance: Distance) -> str:
    """The end of a remedy, where another distance could help."""
    return "" if distance == Distance.BEST else ", or write `distance: best`"


def _limit_of_distance(
    workers: Sequence[Wanted], candidates: Sequence[Candidate], fabric: Fabric, distance: Distance, *, where: str
) -> tuple[str, str] | None:
    """Why this distance has no room, by number alone, and what to do."""
    workers = [worker for worker in workers if not worker.stage]  # stages of one number meet; others may be anywhere
    decode = sum(worker.tensor_parallel for worker in workers if worker.role == Role.DECODE)
    prefill = sum(worker.tensor_parallel for worker in workers) - decode
    who = "all workers need" if _each(workers) == "worker" else "one stage of all workers needs"
    needed = prefill + decode
    leaves: dict[str, list[int]] = {}
    for candidate in candidates:
        leaves.setdefault(fabric.leaves_named(candidate.name), []).append(len(candidate.gpus))
    largest = max(len(candidate.gpus) for candidate in candidates)
    divided = len({worker.partition for worker in workers}) > 1
    if distance == Distance.SAME_NODE and (divided or needed > largest):
        reason = f"{who} {needed} GPUs of one node, and the largest of {where} has {largest}"
        other = "write `distance: same-leaf` or `distance: best`"
        return (f"{where} have no node in common", other) if divided else (reason, f"use fewer workers, or {other}")
    leaf = max(leaves, key=lambda name: sum(leaves[name]))
    apart = "prefill and decode on different nodes"
    if distance == Distance.SAME_LEAF and needed > sum(leaves[leaf]):
        reason = (
            f"{who} {needed} GPUs under one leaf switch, {apart}; the largest of {where}, {leaf}, has "
            f"{sum(leaves[leaf])}"
        )
        return reason, f"use fewer workers{_or_best(distance)}"
    if distance == Distance.SAME_LEAF and not any(_divides(sizes, prefill, decode) for sizes in leaves.values()):
        reason = (
            f"no leaf switch of {where} has nodes with {prefill} GPUs for prefill and others with {decode} for decode"
        )
        return reason, f"use fewer workers{_or_best(distance)}"
    if distance == Distance.ACROSS_LEAVES and len(leaves) == 1:
        reason = f"all nodes of {where} are under one leaf switch, {leaf}"
        return reason, "use nodes of a second leaf, or write `distance: best`"
    if distance == Distance.ACROSS_LEAVES and not _divides(list(map(sum, leaves.values())), prefill, decode):
        reason = f"{where} has no leaf switches with {prefill} GPUs for prefill and others with {decode} for decode"
        return reason, f"use fewer workers{_or_best(distance)}"
    return None


def _divides(sizes: Sequence[int], one: int, other: int) -> bool:
    """Whether some of the sizes sum up to `one` or more, and the rest to `other` or more."""
    reached = 1  # bit n: some of the sizes sum up to n
    for size in sizes:
        reached |= reached << size
    spare = sum(sizes) - one - other
    return spare >= 0 and bool((reached >> one) & ((1 << (spare + 1)) - 1))


def _unjoined(candidates: Sequence[Candidate], fabric: Fabric) -> Iterator[PlacementError]:
    """What keeps neighbours in the list of nodes apart."""
    for one, other in pairwise(candidates):
        if one.gpus and other.gpus:
            try:
                fabric.path(GpuAt(one.name, one.gpus[0]), GpuAt(other.name, other.gpus[0]))
            except PlacementError as error:
                yield error
