"""Which of some nodes Slurm grants: those that it would take now, and the least lucky ones."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from hpcserve.fabric import Fabric

__all__ = ["by_leaf", "cut_blocks", "least_lucky", "luckiest", "poorest", "would_take"]


def by_leaf(names: Iterable[str], fabric: Fabric) -> dict[str, list[str]]:
    """The nodes of each leaf."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(fabric.leaf_of(name), []).append(name)
    return groups


def would_take(free: Sequence[str], count: int, fabric: Fabric, *, packs: bool) -> tuple[str, ...] | None:
    """The idle nodes that Slurm would take; None where there are too few.

    With topology/tree or block the leaf whose idle nodes suffice and of which fewest are left, else the leaves with
    most of them (Slurm's topology guide: best fit, fewest leaves); without, the first ones.
    """
    if len(free) < count:
        return None
    if not packs:
        return tuple(free[:count])
    leaves = by_leaf(free, fabric).values()
    enough = [nodes for nodes in leaves if len(nodes) >= count]
    if enough:
        return tuple(min(enough, key=len)[:count])
    return tuple(node for nodes in sorted(leaves, key=len, reverse=True) for node in nodes)[:count]


def least_lucky(names: Sequence[str], count: int, leaves: int, fabric: Fabric) -> tuple[str, ...] | None:
    """Nodes of so many leaves, as far apart as leaves are, as evenly as they can be; None where they have too few.

    Of each leaf the poorest nodes.
    """
    groups = by_leaf(poorest(names, fabric), fabric)
    least = -(-count // leaves)
    roomy = [leaf for leaf, nodes in groups.items() if len(nodes) >= least]
    if len(roomy) < leaves:
        roomy = sorted(groups, key=lambda leaf: -len(groups[leaf]))
    chosen: list[str] = []
    above = {leaf: fabric.switches_above(leaf) for leaf in roomy}
    while roomy and len(chosen) < leaves:
        farthest = max(roomy, key=lambda leaf: min((_apart(above[leaf], above[one]) for one in chosen), default=0))
        chosen.append(farthest)
        roomy.remove(farthest)
    layers = zip_longest(*(groups[leaf] for leaf in chosen))
    taken = tuple(node for layer in layers for node in layer if node is not None)[:count]
    return taken if len(taken) == count else None


def luckiest(names: Sequence[str], count: int, leaves: int, fabric: Fabric) -> tuple[str, ...]:
    """All nodes of the so many leaves with the richest nodes; of the largest leaves where those have too few."""
    groups = list(by_leaf(reversed(poorest(names, fabric)), fabric).values())
    if leaves == 1:
        groups = [nodes for nodes in groups if len(nodes) >= count] or groups
    elif sum(map(len, groups[:leaves])) < count:
        groups.sort(key=len, reverse=True)
    return tuple(node for nodes in groups[:leaves] for node in nodes)


def poorest(names: Iterable[str], fabric: Fabric) -> list[str]:
    """The nodes with least NIC rate first, then those of the smallest GPUs; else in the order given."""

    def wealth(name: str) -> tuple[float, float]:
        kind = fabric.node_type(name)
        return sum(nic.rate.known_gb_per_s or 0.0 for nic in kind.nics), kind.gpu.memory_gib

    return sorted(names, key=wealth)


def cut_blocks(blocks: Iterable[Sequence[str]], segment: int, count: int, *, packs: bool) -> tuple[str, ...] | None:
    """Segments of so many nodes, each of one block; None where the blocks have too few of them.

    With `packs` from as few blocks as can be, else of different ones.
    """
    pieces = [[block[at : at + segment] for at in range(0, len(block) - segment + 1, segment)] for block in blocks]
    if packs:
        ordered = [piece for block in sorted(pieces, key=len, reverse=True) for piece in block]
    else:
        ordered = [piece for layer in zip_longest(*pieces) for piece in layer if piece is not None]
    taken = tuple(node for piece in ordered[: count // segment] for node in piece)
    return taken if len(taken) == count else None


def _apart(one: Sequence[str], other: Sequence[str]) -> int:
    """Levels up to the switch that two leaves share; one more than there are where they share none."""
    shared = set(other)
    return next((level for level, switch in enumerate(one) if switch in shared), len(one) + 1)
