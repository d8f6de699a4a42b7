"""Seats -> the parts of a `Plan`: workers with NICs, cores and ports, path costs, what Slurm is asked for."""

from collections.abc import Mapping, Sequence

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, GpuAt
from hpcserve.nouns import (
    Allocation,
    Ask,
    Distance,
    GrantedNode,
    ModelShape,
    PathCost,
    PlannedWorker,
    Rank,
    Role,
    Service,
    Site,
)
from hpcserve.placement.cost import handover
from hpcserve.placement.demand import Wanted
from hpcserve.placement.ground import Ground, Seat

__all__ = ["ask_for", "path_costs", "planned_workers", "router_port"]


def planned_workers(
    workers: Sequence[Wanted], seats: Mapping[str, Seat], ground: Ground, allocation: Allocation | None
) -> tuple[PlannedWorker, ...]:
    """The workers in their order, with NICs by affinity, cores shared by GPU count, and the ports of their GPUs."""
    planned: list[PlannedWorker] = []
    for worker in workers:
        seat = seats[worker.id]
        candidate = ground.candidates[seat.node]
        cores = _cores(worker, seats, candidate.cores)
        port, side_channel = None, None
        if allocation is not None:
            port, side_channel = _ports(worker, seat, allocation.node(candidate.name))
        nics = dict.fromkeys(ground.fabric.nic(GpuAt(candidate.name, gpu)).name for gpu in seat.gpus)
        planned.append(
            PlannedWorker(
                id=worker.id,
                role=worker.role,
                ranks=(Rank(node=candidate.name, gpus=seat.gpus, nics=tuple(nics), cores=cores),),
                tensor_parallel=worker.tensor_parallel,
                port=port,
                side_channel_port=side_channel,
            )
        )
    return tuple(planned)


def _cores(worker: Wanted, seats: Mapping[str, Seat], cores: tuple[int, ...]) -> tuple[int, ...]:
    """The worker's part of its node's cores, in the order of GPUs and by their number; all where there are too few."""
    here = sorted(seat for seat in seats.values() if seat.node == seats[worker.id].node)
    gpus = sum(len(seat.gpus) for seat in here)
    if len(cores) < gpus:
        return cores
    before = sum(len(seat.gpus) for seat in here if seat < seats[worker.id])
    after = before + len(seats[worker.id].gpus)
    return cores[len(cores) * before // gpus : len(cores) * after // gpus]


def _ports(worker: Wanted, seat: Seat, node: GrantedNode) -> tuple[int, int]:
    """HTTP and side channel: the first port of the block of the worker's lowest GPU slot, and those that follow."""
    slot = min(position for position, gpu in enumerate(node.gpus) if gpu.index in seat.gpus)
    first, count = node.ports[slot] if slot < len(node.ports) else (0, 0)
    if count < 1 + worker.tensor_parallel:
        raise PlacementError(
            f"{worker.id} needs {1 + worker.tensor_parallel} ports on {node.name}, and the agent holds {count} for GPU "
            f"slot {slot}",
            remedy="start the agent with larger blocks of ports",
        )
    return first, first + 1


def router_port(service: Service, head: GrantedNode) -> int:
    """The port that the user chose, else the first of the last block that the head node's agent holds."""
    if service.router.port is not None:
        return service.router.port
    if len(head.ports) <= len(head.gpus):
        raise PlacementError(
            f"the agent of {head.name} holds {len(head.ports)} blocks of ports, for {len(head.gpus)} GPU slots and "
            "a router",
            remedy="start the agent with one block more, or set router.port",
        )
    return head.ports[-1][0]


def path_costs(
    workers: Sequence[PlannedWorker], fabric: Fabric, shape: ModelShape, service: Service
) -> tuple[PathCost, ...]:
    """The cost of every (prefill, decode) pair for the service's typical request."""
    return tuple(
        PathCost(
            prefill=prefill.id,
            decode=decode.id,
            distance=cost.distance,
            hops=cost.hops,
            gb_per_s=cost.gb_per_s,
            kv_bytes=cost.kv_bytes,
            transfer_ms=cost.transfer_ms,
            source=cost.source,
        )
        for prefill in workers
        if prefill.role == Role.PREFILL
        for decode in workers
        if decode.role == Role.DECODE
        for cost in (
            handover(
                fabric,
                shape,
                tokens=service.workload.input_tokens,
                prefill=_gpus(prefill),
                decode=_gpus(decode),
            ),
        )
    )


def _gpus(worker: PlannedWorker) -> tuple[GpuAt, ...]:
    return tuple(GpuAt(rank.node, gpu) for rank in worker.ranks for gpu in rank.gpus)


def ask_for(workers: Sequence[PlannedWorker], fabric: Fabric, site: Site, service: Service, *, mode: str) -> Ask:
    """What Slurm is asked for, so that what it grants can carry the plan.

    Under one leaf: `switches` 1. Across leaves on purpose: the very nodes, as Slurm's tree plugin packs a job under one
    leaf where it can. Spread over leaves for want of room: at most as many leaves as planned.
    """
    used: dict[str, int] = {}
    for worker in workers:
        for rank in worker.ranks:
            used[rank.node] = used.get(rank.node, 0) + len(rank.gpus)
    nodes = tuple(node for node in fabric.nodes if node in used)
    leaves = {fabric.leaf_of(node) for node in nodes}
    nodelist, switches = None, None
    if mode == "disaggregated" and len(nodes) > 1 and site.slurm is not None:
        if service.distance == Distance.ACROSS_LEAVES:
            nodelist = nodes
        elif site.slurm.switches_option:
            switches = len(leaves)
        elif service.distance == Distance.SAME_LEAF:
            nodelist = nodes
    return Ask(
        partition=service.partition,
        nodes=len(nodes),
        gpus_per_node=max(used.values()),
        nodelist=nodelist,
        switches=switches,
    )
