"""(Fabric, model, service, allocation or none) -> `Plan`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from hpcserve.errors import NotFoundError, PlacementError
from hpcserve.fabric import Fabric, GpuAt
from hpcserve.nouns import Allocation, Distance, Mode, ModelShape, Plan, RouterSeat, Service, Site, Verdict
from hpcserve.placement.assemble import ask_for, path_costs, planned_workers, router_port
from hpcserve.placement.cost import handover
from hpcserve.placement.demand import Wanted, check_model, has_both_phases, workers_of
from hpcserve.placement.ground import Candidate, Ground, Seat
from hpcserve.placement.refusals import check_room, no_seating
from hpcserve.placement.search import Found, Search
from hpcserve.placement.verdict import cannot_be_separate, judge, of_the_alternative, without_phases
from hpcserve.site import expand_hosts

__all__ = ["place"]

_NS_PER_MS = 1e6

PlannedMode = Literal["disaggregated", "aggregated"]


def place(
    *,
    fabric: Fabric,
    site: Site,
    shape: ModelShape,
    service: Service,
    allocation: Allocation | None = None,
    asked: Plan | None = None,
) -> Plan:
    """The best placement on the partition's nodes, or on those that were granted; see `search` for what is best.

    With `asked`, the mode is the one asked for; where the nodes are too, the plan is the same but for `granted`, ports,
    and cores where the agents found others. In mode `auto` the verdict on the best disaggregated placement decides; in
    the other modes the user does, and the verdict stands beside it. Raises PlacementError where there is no placement,
    naming the limit that binds and what would lift it, NotFoundError for a partition or node that the site lacks.
    """
    case = _Case(fabric=fabric, site=site, shape=shape, service=service, allocation=allocation, asked=asked)
    if asked is not None:
        return case.separate() if asked.mode == "disaggregated" else case.whole(asked.verdict)
    if service.mode == Mode.DISAGGREGATED:
        return case.separate()
    try:
        plan = case.separate() if has_both_phases(service) else None
    except PlacementError as error:
        return case.whole(cannot_be_separate(error))
    if plan is None:
        return case.whole(without_phases())
    if service.mode == Mode.AUTO and plan.verdict.disaggregate:
        return plan
    return case.whole(of_the_alternative(plan.verdict))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Everything that a placement follows from."""

    fabric: Fabric
    site: Site
    shape: ModelShape
    service: Service
    allocation: Allocation | None
    asked: Plan | None

    def separate(self) -> Plan:
        """The plan with prefill and decode on workers of their own."""
        if not has_both_phases(self.service):
            raise PlacementError(
                f"service {self.service.name} has no prefill and decode pools to place apart",
                remedy="add the pool that is missing, or write `mode: aggregated`",
            )
        return self._planned("disaggregated", None)

    def whole(self, verdict: Verdict) -> Plan:
        """The plan with aggregated workers."""
        return self._planned("aggregated", verdict)

    def _planned(self, mode: PlannedMode, verdict: Verdict | None) -> Plan:
        workers = workers_of(self.service, mode)
        candidates = self._candidates()
        check_room(workers, candidates, where=self._where)
        types = [self.fabric.node_type(candidate.name) for candidate in candidates]
        check_model(
            workers, self.shape, self.service, gpu_memory_gib=max(node_type.gpu.memory_gib for node_type in types)
        )
        ground = Ground(self.fabric, candidates, workers=len(workers))
        found = self._searched(workers, ground, candidates)
        planned = planned_workers(workers, found.seats, ground, self.allocation)
        paths = path_costs(planned, self.fabric, self.shape, self.service)
        verdict = verdict or judge(self.service, paths)
        if not found.exact:
            more = f"the placement is the best of those looked at ({found.tried} steps); a better one may exist"
            verdict = verdict.model_copy(update={"reasons": (*verdict.reasons, more)})
        return Plan(
            service=self.service.name,
            site=self.site.name,
            granted=self.allocation is not None,
            asked_mode=self.service.mode,
            mode=mode,
            distance=self.service.distance,
            workers=planned,
            router=self._router({worker.node for worker in planned}),
            paths=paths,
            verdict=verdict,
            ask=ask_for(planned, self.fabric, self.site, self.service, mode=mode),
        )

    def _searched(self, workers: tuple[Wanted, ...], ground: Ground, candidates: tuple[Candidate, ...]) -> Found:
        search = Search(workers, ground, _Price(self, ground))
        promised = self._promised(workers, ground)
        found = search.best([promised] if promised else [])
        if found is None:
            raise no_seating(
                workers,
                candidates,
                self.fabric,
                self.service.distance,
                where=self._where,
                exhausted=search.exhausted,
            )
        if promised and not found.exact and len({seat.node for seat in promised.values()}) == len(candidates):
            # What was promised for these very nodes holds, also where another search might have found better.
            return Found(seats=promised, exact=False, tried=found.tried)
        return found

    @property
    def _where(self) -> str:
        if self.allocation is not None:
            return "the allocation"
        return f"partition {self.service.partition}" if self.service.partition else f"site {self.site.name}"

    def _candidates(self) -> tuple[Candidate, ...]:
        """The granted nodes, or those of the partition, or all of the site; in the site's order."""
        if self.allocation is not None:
            granted = {node.name: node for node in self.allocation.nodes}
            for name in granted:
                self.fabric.node_type(name)
            return tuple(
                Candidate(
                    name=name,
                    gpus=tuple(sorted(gpu.index for gpu in granted[name].gpus)),
                    cores=granted[name].cores,
                )
                for name in self.fabric.nodes
                if name in granted
            )
        names = set(self.fabric.nodes)
        if self.service.partition is not None:
            partition = self.site.partitions.get(self.service.partition)
            if partition is None:
                raise NotFoundError(
                    f"site {self.site.name} has no partition `{self.service.partition}`",
                    remedy=f"use one of {', '.join(self.site.partitions)}" if self.site.partitions else "write null",
                )
            names = set(expand_hosts(partition.hosts))
        return tuple(
            Candidate(name=name, gpus=tuple(range(kind.gpu.count)), cores=tuple(range(kind.cores)))
            for name in self.fabric.nodes
            if name in names
            for kind in (self.fabric.node_type(name),)
        )

    def _promised(self, workers: tuple[Wanted, ...], ground: Ground) -> Mapping[str, Seat] | None:
        """The seats that the asked plan gave, where the granted nodes have them."""
        if self.asked is None or {worker.id for worker in workers} != {worker.id for worker in self.asked.workers}:
            return None
        number = {candidate.name: index for index, candidate in enumerate(ground.candidates)}
        seats: dict[str, Seat] = {}
        for worker in self.asked.workers:
            rank = worker.ranks[0]
            if rank.node not in number or not set(rank.gpus) <= set(ground.candidates[number[rank.node]].gpus):
                return None
            seats[worker.id] = Seat(number[rank.node], rank.gpus)
        return seats

    def _router(self, used: set[str]) -> RouterSeat:
        """The router sits with the head agent: on the first granted node, or the first planned one before that."""
        if self.allocation is not None:
            head = self.allocation.nodes[0]
            return RouterSeat(node=head.name, port=router_port(self.service, head))
        return RouterSeat(node=next(node for node in self.fabric.nodes if node in used), port=self.service.router.port)


@dataclass(frozen=True, slots=True)
class _Price:
    """Nanoseconds of a handover between two seats; None at another distance than asked, or where there is no path."""

    case: _Case
    ground: Ground

    def __call__(self, seat: Seat, decode_seat: Seat) -> int | None:
        names = [self.ground.candidates[one.node].name for one in (seat, decode_seat)]
        wanted = self.case.service.distance
        if wanted not in (Distance.BEST, self.case.fabric.distance(*names)):
            return None
        try:
            cost = handover(
                self.case.fabric,
                self.case.shape,
                tokens=self.case.service.workload.input_tokens,
                prefill=tuple(GpuAt(names[0], gpu) for gpu in seat.gpus),
                decode=tuple(GpuAt(names[1], gpu) for gpu in decode_seat.gpus),
            )
        except PlacementError:
            return None
        return round(cost.transfer_ms * _NS_PER_MS)
