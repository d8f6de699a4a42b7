"""Why a service cannot be placed: the limit that binds, and what would lift it."""

from collections.abc import Sequence

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric
from hpcserve.nouns import Distance
from hpcserve.placement.demand import Wanted
from hpcserve.placement.ground import Candidate

__all__ = ["check_room", "no_seating"]


def check_room(workers: Sequence[Wanted], candidates: Sequence[Candidate], *, where: str) -> None:
    """Raise PlacementError where the nodes have too few GPUs, whatever the fabric between them."""
    largest = max((len(candidate.gpus) for candidate in candidates), default=0)
    if not largest:
        raise PlacementError(f"{where} has no node with a GPU", remedy="choose another partition")
    widest = max(workers, key=lambda worker: worker.tensor_parallel)
    if widest.tensor_parallel > largest:
        raise PlacementError(
            f"tensor_parallel {widest.tensor_parallel} of {widest.id} is more than the {largest} GPUs of the largest "
            f"node of {where}",
            remedy="a worker's ranks stay in one node: lower tensor_parallel, or choose larger nodes",
        )
    needed = sum(worker.tensor_parallel for worker in workers)
    there = sum(len(candidate.gpus) for candidate in candidates)
    if needed > there:
        raise PlacementError(
            f"{len(workers)} workers need {needed} GPUs, and {where} has {there} ({len(candidates)} nodes)",
            remedy="ask for fewer workers or less tensor_parallel, or use a larger partition",
        )


def no_seating(
    workers: Sequence[Wanted],
    candidates: Sequence[Candidate],
    fabric: Fabric,
    distance: Distance,
    *,
    where: str,
    exhausted: bool,
) -> PlacementError:
    """The error for workers that fit by number and still have no seats."""
    needed = sum(worker.tensor_parallel for worker in workers)
    by_leaf: dict[str, int] = {}
    for candidate in candidates:
        leaf = fabric.leaf_of(candidate.name)
        by_leaf[leaf] = by_leaf.get(leaf, 0) + len(candidate.gpus)
    if exhausted:
        return PlacementError(
            f"no placement at distance {distance} was found on {where} before the search gave up",
            remedy="use distance best, or fewer workers",
        )
    match distance:
        case Distance.SAME_NODE:
            largest = max(len(candidate.gpus) for candidate in candidates)
            reason = f"all workers need {needed} GPUs of one node, and the largest of {where} has {largest}"
            remedy = "use fewer workers, or distance same-leaf or best"
        case Distance.SAME_LEAF:
            leaf = max(by_leaf, key=lambda name: by_leaf[name])
            reason = (
                f"all workers need {needed} GPUs under one leaf switch, prefill and decode on different nodes; the "
                f"largest of {where}, {leaf}, has {by_leaf[leaf]}"
            )
            remedy = "use fewer workers, or distance best"
        case Distance.ACROSS_LEAVES if len(by_leaf) == 1:
            reason = f"all nodes of {where} are under one leaf switch, {next(iter(by_leaf))}"
            remedy = "use nodes of a second leaf, or distance best"
        case Distance.ACROSS_LEAVES:
            reason = (
                f"no joined leaves of {where} hold the prefill workers on one side and the decode workers on the other"
            )
            remedy = "use fewer workers, or distance best"
        case _:
            reason = (
                f"the nodes of {where} cannot hold {len(workers)} workers whose ranks stay in one node, with a path "
                "from every prefill to every decode worker"
            )
            remedy = "use fewer workers or another tensor_parallel"
    return PlacementError(f"distance {distance}: {reason}", remedy=remedy)
