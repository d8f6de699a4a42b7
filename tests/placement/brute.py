"""Every seating of a small case and what it costs, from the definition: nothing of the search's own is used."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from math import prod
from typing import NamedTuple

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, FabricPath, GpuAt
from hpcserve.model import stage_bytes
from hpcserve.nouns import Distance, Plan, Role
from hpcserve.site import expand_hosts
from tests.strategies import Case

Seat = tuple[str, tuple[int, ...]]
Cost = tuple[int, int, int, int, int, int, int, int]

__all__ = ["Brute", "Cost", "Seat", "in_order", "placed", "stages_of"]


class Stage(NamedTuple):
    """One pipeline stage of the worker of that number."""

    role: Role
    ranks: int
    worker: int
    stage: int
    stages: int
    nodes: tuple[str, ...]
    """Of the worker's partition."""


def placed(plan: Plan) -> tuple[Seat, ...]:
    """Where each stage of each worker is, in the order of `stages_of`."""
    return tuple((rank.node, rank.gpus) for worker in plan.workers for rank in worker.ranks)


def stages_of(case: Case) -> list[Stage]:
    """All stages of the first worker, then of the next, in the plan's order."""
    hosts = {name: expand_hosts(partition.hosts) for name, partition in case.site.partitions.items()}
    pools = [pool for pool in case.service.pools for _ in range(pool.workers)]
    return [
        Stage(
            pool.role,
            pool.tensor_parallel,
            number,
            stage,
            pool.pipeline_parallel,
            hosts[pool.partition or case.service.partition or ""],
        )
        for number, pool in enumerate(pools)
        for stage in range(pool.pipeline_parallel)
    ]


@dataclass
class Brute:
    """One case; costs are of seats in the order of `stages_of`."""

    case: Case
    fabric: Fabric

    def __post_init__(self) -> None:
        self._pairs: dict[tuple[Seat, Seat, int, int], tuple[dict[str, int], int] | None] = {}

    def cost(self, seating: tuple[Seat, ...]) -> Cost | None:
        taken = [(node, gpu) for node, gpus in seating for gpu in gpus]
        if len(taken) != len(set(taken)) or not all(map(self.is_whole, seating)):
            return None
        hops = 0
        loads: dict[str, int] = {}
        of_workers: dict[tuple[int, int, str], int] = {}
        seats = list(zip(seating, stages_of(self.case), strict=True))
        if not all(seat[0] in stage.nodes for seat, stage in seats):
            return None
        for (prefill, one), (decode, other) in product(seats, repeat=2):
            if (one.role, other.role) != (Role.PREFILL, Role.DECODE) or one.stage != other.stage:
                continue
            pair = self.pair(prefill, decode, one.stage, one.stages)
            if pair is None:
                return None
            hops += pair[1]
            for link, ns in pair[0].items():
                loads[link] = loads.get(link, 0) + ns
                together = (one.worker, other.worker, link)
                of_workers[together] = of_workers.get(together, 0) + ns
        between = 0
        for (seat, one), (following, other) in pairwise(seats):
            if one.worker == other.worker:
                ns_between = self.between(seat, following)
                if ns_between is None:
                    return None
                between += ns_between
        nodes = {node for node, _ in seating}
        leaves = {tuple(sorted(set(self.fabric.leaves_of(node).values()))) for node in nodes}
        split = sum(not self.is_joined(seat) for seat in seating)
        slowest, busiest = (max(ns.values(), default=0) for ns in (of_workers, loads))
        return split, slowest, sum(loads.values()), between, busiest, len(nodes), hops, len(leaves)

    def best(self) -> Cost | None:
        """The least cost of all seatings."""
        return min((cost for cost in map(self.cost, self.seatings()) if cost is not None), default=None)

    def fewest_nodes(self) -> int:
        """Of all seatings that can be, the cheapest or not; it may use fewer than the cheapest does."""
        return min(cost[5] for cost in map(self.cost, self.seatings()) if cost is not None)

    def seatings(self) -> Iterator[tuple[Seat, ...]]:
        return product(*(self.seats(stage.ranks, stage.nodes) for stage in stages_of(self.case)))

    def count(self) -> int:
        return prod(len(self.seats(stage.ranks, stage.nodes)) for stage in stages_of(self.case))

    def seats(self, ranks: int, nodes: tuple[str, ...]) -> list[Seat]:
        return [
            (node, gpus)
            for node in self.fabric.nodes
            if node in nodes
            for gpus in combinations(range(self.fabric.node_type(node).gpu.count), ranks)
        ]

    def is_joined(self, seat: Seat) -> bool:
        islands = self.fabric.node_type(seat[0]).nvlink
        return len(seat[1]) == 1 or not islands or any(set(seat[1]) <= set(island.gpus) for island in islands)

    def is_whole(self, seat: Seat) -> bool:
        return self.is_joined(seat) or self.fabric.node_type(seat[0]).tensor_parallel_across_islands

    def between(self, seat: Seat, following: Seat) -> int | None:
        """Nanoseconds of the slowest link for a megabyte, evenly from rank to rank."""
        loads: dict[str, float] = {}
        try:
            for one, other in zip(seat[1], following[1], strict=True):
                for link in self.fabric.path(GpuAt(seat[0], one), GpuAt(following[0], other)).links:
                    loads[link.name] = loads.get(link.name, 0.0) + 1e6 / len(seat[1]) / link.gb_per_s
        except PlacementError:
            return None
        return round(max(loads.values()))

    def pair(self, prefill: Seat, decode: Seat, stage: int, stages: int) -> tuple[dict[str, int], int] | None:
        key = (prefill, decode, stage, stages)
        if key not in self._pairs:
            self._pairs[key] = self._pair(prefill, decode, stage, stages)
        return self._pairs[key]

    def _pair(self, prefill: Seat, decode: Seat, stage: int, stages: int) -> tuple[dict[str, int], int] | None:
        """Of one handover what each link needs, in whole nanoseconds, and the hops."""
        service = self.case.service
        if service.distance not in (Distance.BEST, self.fabric.distance(prefill[0], decode[0])):
            return None
        if prefill[0] == decode[0] and set(prefill[1]) & set(decode[1]):
            return None
        senders, receivers = len(prefill[1]), len(decode[1])
        tokens = service.workload.input_tokens
        kept = stage_bytes(self.case.shape, tokens, stages=stages, tensor_parallel=receivers)[stage]
        flows: list[tuple[FabricPath, float]] = []
        try:
            for number in range(max(senders, receivers)):
                here = GpuAt(prefill[0], prefill[1][number * senders // max(senders, receivers)])
                there = GpuAt(decode[0], decode[1][number * receivers // max(senders, receivers)])
                flows.append((self.fabric.path(here, there), kept * receivers / max(senders, receivers)))
        except PlacementError:
            return None
        loads: dict[str, float] = {}
        for path, size_bytes in flows:
            for link in path.links:
                loads[link.name] = loads.get(link.name, 0.0) + size_bytes / link.gb_per_s
        return {name: round(ns) for name, ns in loads.items()}, sum(len(path.hops) for path, _ in flows)


def in_order(case: Case, fabric: Fabric) -> tuple[Seat, ...] | None:
    """Nodes filled in the order of the host list, prefill first: what a script without a model of the fabric does."""
    free = {name: list(range(fabric.node_type(name).gpu.count)) for name in fabric.nodes}
    seats: dict[int, Seat] = {}
    for number, stage in sorted(enumerate(stages_of(case)), key=lambda one: one[1].role == Role.DECODE):
        ranks = stage.ranks
        node = next((name for name, gpus in free.items() if name in stage.nodes and len(gpus) >= ranks), None)
        if node is None:
            return None
        seats[number] = (node, tuple(free[node][:ranks]))
        free[node] = free[node][ranks:]
    return tuple(seats[number] for number in sorted(seats))
