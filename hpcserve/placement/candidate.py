"""Nodes that may be used, and where one worker may sit on them."""

from collections.abc import Mapping
from dataclasses import dataclass

from hpcserve.fabric import Fabric

__all__ = ["Candidate", "Seat", "Used", "areas_of"]

Used = Mapping[int, frozenset[int]]
"""By the number of a node the GPUs that are taken there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One node that may be used: its GPUs and cores, by the node's own numbers; only by workers of its partition."""

    name: str
    gpus: tuple[int, ...]
    cores: tuple[int, ...]
    partition: str | None = None


@dataclass(frozen=True, slots=True, order=True)
class Seat:
    """Where one worker sits: a candidate's number, and its GPUs in rank order, which is ascending."""

    node: int
    gpus: tuple[int, ...]


def areas_of(fabric: Fabric, candidate: Candidate) -> tuple[tuple[int, ...], ...]:
    """The sets of GPUs of a node in which a worker's ranks stay together: NVLink islands, or all, where it has none."""
    kind = fabric.node_type(candidate.name)
    if not kind.nvlink or kind.tensor_parallel_across_islands:
        return (candidate.gpus,)
    return tuple(tuple(gpu for gpu in candidate.gpus if gpu in island.gpus) for island in kind.nvlink)
