"""Who sits where: what both the terminal map and the SVG are drawn from."""

from collections.abc import Callable
from dataclasses import dataclass

from hpcserve.nouns import PathCost, Plan

__all__ = ["Seats", "alike_paths", "label", "seats_of"]

_MOST_APART = 16
"""Paths that are shown one by one; of more, nobody reads the same figures again and again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seats:
    """The plan's nodes by leaf (both sorted), and the worker on each GPU in use."""

    leaves: dict[str, tuple[str, ...]]
    worker_at: dict[tuple[str, int], str]
    gpus_per_node: int


def seats_of(plan: Plan, *, leaf_of: Callable[[str], str]) -> Seats:
    """The seats of a plan. GPUs per node are those asked for, or more where a rank uses a higher index."""
    leaves: dict[str, list[str]] = {}
    for node in plan.nodes:
        leaves.setdefault(leaf_of(node), []).append(node)
    ranks = [(worker.id, rank) for worker in plan.workers for rank in worker.ranks]
    most_asked = max(ask.gpus_per_node for ask in plan.asks)
    return Seats(
        leaves={leaf: tuple(leaves[leaf]) for leaf in sorted(leaves)},
        worker_at={(rank.node, gpu): worker for worker, rank in ranks for gpu in rank.gpus},
        gpus_per_node=max(most_asked, *(gpu + 1 for _, rank in ranks for gpu in rank.gpus), 1),
    )


def alike_paths(plan: Plan) -> list[list[PathCost]]:
    """The plan's paths; of more than 16, those of equal distance and cost in one group, which is shown as one."""
    if len(plan.paths) <= _MOST_APART:
        return [[path] for path in plan.paths]
    groups: dict[tuple[str, float, float], list[PathCost]] = {}
    for path in plan.paths:
        groups.setdefault((path.distance, path.gb_per_s, path.transfer_ms), []).append(path)
    return list(groups.values())


def label(worker_id: str) -> str:
    """`P0` of `prefill-0`: the role's first letter and the worker's number."""
    role, _, number = worker_id.rpartition("-")
    return f"{role[:1].upper()}{number}"
