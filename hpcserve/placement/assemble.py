"""Seats -> the parts of a `Plan`: workers with NICs, cores and ports, and path costs."""

from collections.abc import Mapping, Sequence

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, GpuAt
from hpcserve.nouns import (
    Allocation,
    GrantedNode,
    ModelShape,
    PathCost,
    PlannedWorker,
    Rank,
    Role,
    Service,
)
from hpcserve.placement.candidate import Seat
from hpcserve.placement.cores import cores_by_worker
from hpcserve.placement.cost import handover
from hpcserve.placement.demand import StageOf, Wanted
from hpcserve.placement.ground import Ground

__all__ = ["path_costs", "planned_workers", "router_port"]


def planned_workers(
    workers: Sequence[Wanted], seats: Mapping[StageOf, Seat], ground: Ground, allocation: Allocation | None
) -> tuple[PlannedWorker, ...]:
    """The workers in their order, with the NICs, cores and ports of their GPUs, stage by stage."""
    planned: list[PlannedWorker] = []
    cores = cores_by_worker(seats, ground)
    for worker in workers:
        keys = [(worker.id, stage) for stage in range(worker.stages)]
        port, side_channel = None, None
        if allocation is not None:
            first = seats[worker.key]
            port, side_channel = _ports(worker, first, allocation.node(ground.candidates[first.node].name))
        planned.append(
            PlannedWorker(
                id=worker.id,
                role=worker.role,
                ranks=tuple(_rank(seats[key], cores[key], ground) for key in keys),
                tensor_parallel=worker.tensor_parallel,
                port=port,
                side_channel_port=side_channel,
            )
        )
    return tuple(planned)


def _rank(seat: Seat, cores: tuple[int, ...], ground: Ground) -> Rank:
    node = ground.candidates[seat.node].name
    nics = dict.fromkeys(ground.fabric.nic(GpuAt(node, gpu)).name for gpu in seat.gpus)
    return Rank(node=node, gpus=seat.gpus, nics=tuple(nics), cores=cores)


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
            rank_paths=cost.rank_paths,
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
                prefill=_stages(prefill),
                decode=_stages(decode),
            ),
        )
    )


def _stages(worker: PlannedWorker) -> list[list[GpuAt]]:
    return [[GpuAt(rank.node, gpu) for gpu in rank.gpus] for rank in worker.ranks]
