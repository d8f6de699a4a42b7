"""What Slurm is asked for, so that what it grants can carry the plan."""

from collections.abc import Mapping, Sequence
from math import gcd

from hpcserve.fabric import Fabric
from hpcserve.nouns import Ask, Distance, PlannedWorker, Service, Site
from hpcserve.placement.candidate import Candidate
from hpcserve.site import expand_hosts

__all__ = ["asks_for"]


def asks_for(
    workers: Sequence[PlannedWorker],
    fabric: Fabric,
    site: Site,
    service: Service,
    *,
    mode: str,
    owners: Mapping[str, str | None],
    too_small: Sequence[Candidate] = (),
) -> tuple[Ask, ...]:
    """What Slurm is asked for, of each partition in use, the first worker's first; `owners`: the partition of a node.

    Nodes that are `too_small` for a worker of their partition are excluded by name, for spares' sake too.

    Under one leaf: `switches` 1. Across leaves on purpose: the very nodes, as Slurm's tree plugin packs a job under one
    leaf where it can. Spread over leaves for want of room: at most as many leaves as planned. With topology/block:
    segments of as many nodes as the plan has in each block. All this is said of one partition's nodes at a time: how
    far those of several are to be apart can only be said by naming them.
    """
    used: dict[str | None, dict[str, int]] = {}
    for worker in workers:
        for rank in worker.ranks:
            gpus = used.setdefault(owners[rank.node], {})
            gpus[rank.node] = gpus.get(rank.node, 0) + len(rank.gpus)
    apart = len(used) > 1 and service.distance != Distance.BEST
    return tuple(
        _ask(
            partition,
            gpus,
            fabric,
            site,
            service,
            is_separate=mode == "disaggregated",
            names=apart,
            exclude=tuple(one.name for one in too_small if one.partition == partition),
        )
        for partition, gpus in used.items()
    )


def _ask(
    partition: str | None,
    gpus: Mapping[str, int],
    fabric: Fabric,
    site: Site,
    service: Service,
    *,
    is_separate: bool,
    names: bool,
    exclude: tuple[str, ...],
) -> Ask:
    """Of one partition, by node the GPUs that are used; `names`: only the very nodes keep the distance."""
    nodes = tuple(node for node in fabric.nodes if node in gpus)
    leaves = {fabric.leaf_of(node) for node in nodes}
    nodelist, switches, segment = None, None, None
    if is_separate and (len(nodes) > 1 or names) and site.slurm is not None:
        if names or service.distance == Distance.ACROSS_LEAVES:
            nodelist = nodes
        elif site.slurm.switches_option:
            switches = len(leaves)
        elif service.distance == Distance.SAME_LEAF:
            nodelist = nodes
        if nodelist is None:
            segment = _segment(nodes, site, spares=service.spares)
    return Ask(
        partition=partition,
        nodes=len(nodes),
        gpus_per_node=max(gpus.values()),
        nodelist=nodelist,
        switches=switches,
        segment=segment,
        exclude=exclude,
    )


def _segment(nodes: Sequence[str], site: Site, *, spares: int) -> int | None:
    """The nodes of a segment, spares among them; None where this Slurm has none, or they would promise nothing.

    sbatch(1): the number of nodes must be a multiple of the segment's; a segment lies in one base block.
    """
    dialect = site.slurm
    if dialect is None or not dialect.has_segments or not site.blocks:
        return None
    block_of = {host: block.name for block in site.blocks for host in expand_hosts(block.hosts)}
    counts: dict[str | None, int] = {}
    for node in nodes:
        counts[block_of.get(node)] = counts.get(block_of.get(node), 0) + 1
    largest = (
        dialect.block_sizes[0] if dialect.block_sizes else max(len(expand_hosts(one.hosts)) for one in site.blocks)
    )
    together = len(nodes) + spares
    segment = together if len(counts) == 1 else gcd(*counts.values(), together)
    return segment if None not in counts and 1 < segment <= largest else None
