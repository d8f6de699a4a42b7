"""(Fabric, model, service, allocation or none) -> `Plan`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from hpcserve.errors import NotFoundError, PlacementError
from hpcserve.fabric import Fabric
from hpcserve.nouns import Allocation, Mode, ModelShape, NodeType, Plan, Role, RouterSeat, Service, Site, Verdict
from hpcserve.placement.ask import asks_for
from hpcserve.placement.assemble import path_costs, planned_workers, router_port
from hpcserve.placement.candidate import Candidate, Seat
from hpcserve.placement.chains import Chains
from hpcserve.placement.demand import (
    StageOf,
    Wanted,
    check_model,
    has_both_phases,
    most_needed_gib,
    stages_of,
    workers_of,
)
from hpcserve.placement.gap import assignment_of, start_words, words_of
from hpcserve.placement.ground import Ground
from hpcserve.placement.price import Prices
from hpcserve.placement.refusals import check_room, no_seating
from hpcserve.placement.search import Found, Search
from hpcserve.placement.shared import shared_by
from hpcserve.placement.starts import filled
from hpcserve.placement.verdict import cannot_be_separate, judge, of_the_alternative, without_phases
from hpcserve.site import expand_hosts

__all__ = ["place"]

_MOST_UNLIKE = 40
"""Nodes that all can be told apart and are still looked at one by one."""

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
    """The best placement, each worker on its partition's nodes, or those that were granted; see `search`.

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
        return case.whole(cannot_be_separate(error, gpus=case.gpus))
    if plan is None:
        return case.whole(without_phases())
    if service.mode == Mode.AUTO and plan.verdict.disaggregate:
        return plan
    return case.whole(of_the_alternative(plan.verdict))


@dataclass(frozen=True, kw_only=True)
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

    @property
    def gpus(self) -> int:
        """GPUs of all nodes that may be used."""
        return sum(len(candidate.gpus) for candidate in self._candidates(self.service.partitions))

    def _planned(self, mode: PlannedMode, verdict: Verdict | None) -> Plan:
        workers = workers_of(self.service, mode)
        stages = stages_of(workers)
        partitions = tuple(dict.fromkeys(worker.partition for worker in workers))
        every = self._candidates(partitions)
        self._check_room(stages, every)
        memory_gib = {partition: max(map(self._memory_gib, _of(partition, every))) for partition in partitions}
        check_model(workers, self.shape, self.service, gpu_memory_gib=memory_gib)
        needed_gib = most_needed_gib(workers, self.shape, self.service)
        candidates = tuple(one for one in every if self._memory_gib(one) >= needed_gib[one.partition])
        only_gib = needed_gib if len(candidates) < len(every) else None
        if only_gib is not None:
            self._check_room(stages, candidates, only_gib=only_gib)
        naive = filled(stages, candidates, self.fabric)
        promised = self._promised(stages, candidates)
        always = {node for seats in (naive, promised) for node, _ in seats.values()}
        ground = self._ground(stages, candidates, always)
        found = self._searched(stages, ground, candidates, [promised, naive], only_gib=only_gib)
        planned = planned_workers(workers, found.seats, ground, self.allocation)
        paths = path_costs(planned, self.fabric, self.shape, self.service)
        if self.asked is not None and self.asked.paths == paths:
            verdict = self.asked.verdict  # it may rest on a simulation, and holds for the same paths
        verdict = verdict or judge(self.service, paths)
        assignment = assignment_of(found)
        owners = {candidate.name: candidate.partition for candidate in candidates}
        asks = (
            self.asked.asks
            if self.asked is not None
            else asks_for(
                planned,
                self.fabric,
                self.site,
                self.service,
                mode=mode,
                owners=owners,
                too_small=[one for one in every if one.name not in owners],
            )
        )
        plan = Plan(
            service=self.service.name,
            site=self.site.name,
            granted=self.allocation is not None,
            asked_mode=self.service.mode,
            mode=mode,
            distance=self.service.distance,
            workers=planned,
            router=self._router({worker.node for worker in planned if owners[worker.node] == partitions[0]}),
            paths=paths,
            verdict=verdict,
            ask=asks[0],
            further_asks=asks[1:],
            assignment=assignment,
            shared=shared_by(planned, mode=mode),
        )
        reasons = dict.fromkeys((*verdict.reasons, *words_of(assignment), *start_words(self.service, plan)))
        verdict = verdict.model_copy(update={"reasons": tuple(reasons)})
        return plan.model_copy(update={"verdict": verdict})

    def _check_room(
        self,
        stages: tuple[Wanted, ...],
        candidates: tuple[Candidate, ...],
        *,
        only_gib: Mapping[str | None, float] | None = None,
    ) -> None:
        """Refuse what each partition has too few GPUs for; `only_gib`: the candidates are those so large."""
        partitions = dict.fromkeys(stage.partition for stage in stages)
        for partition in partitions:
            check_room(
                [stage for stage in stages if stage.partition == partition],
                _of(partition, candidates),
                self.fabric,
                where=self._where(partition, alone=len(partitions) == 1, only_gib=only_gib),
            )

    def _memory_gib(self, candidate: Candidate) -> float:
        return self.fabric.node_type(candidate.name).gpu.memory_gib

    def _searched(
        self,
        workers: tuple[Wanted, ...],
        ground: Ground,
        candidates: tuple[Candidate, ...],
        seedings: list[Mapping[StageOf, tuple[str, tuple[int, ...]]]],
        *,
        only_gib: Mapping[str | None, float] | None,
    ) -> Found:
        """The best seating; the first of the seedings, the promise, where nothing costs less."""
        prices = Prices(
            self.fabric,
            self.shape,
            tokens=self.service.workload.input_tokens,
            distance=self.service.distance,
            ground=ground,
            stages=max((worker.stages for worker in workers if worker.role != Role.AGGREGATED), default=1),
        )
        search = Search(workers, ground, prices)
        seated = [
            {stage: Seat(ground.numbers[node], gpus) for stage, (node, gpus) in seeding.items()} for seeding in seedings
        ]
        found = search.best([seats for seats in seated if len(seats) == len(workers)])
        if found is None:
            raise no_seating(
                workers,
                candidates,
                self.fabric,
                self.service.distance,
                where=self._where_of(workers, only_gib=only_gib),
                exhausted=search.exhausted,
            )
        promised, _ = seated
        cost = search.cost(promised) if promised else None
        # What was promised for these very nodes holds, also where another search might have found better.
        is_asked = len({seat.node for seat in promised.values()}) == len(candidates)
        if cost is not None and (cost == found.cost or (is_asked and not found.exact)):
            return replace(found, seats=promised, cost=cost)
        return found

    def _ground(self, workers: tuple[Wanted, ...], candidates: tuple[Candidate, ...], always: set[str]) -> Ground:
        """The ground, taken roughly where too many nodes are unlike each other to look at them all."""
        make = partial(
            Ground,
            self.fabric,
            candidates,
            workers=len(workers),
            chains=self._chains,
            always=always,
            rails_alike=all(worker.tensor_parallel == 1 for worker in workers),
        )
        ground = make()
        return ground if sum(1 for _ in ground.openings({})) <= _MOST_UNLIKE else make(roughly=True)

    @cached_property
    def _chains(self) -> Chains:
        return Chains(self.fabric)

    def _where(self, partition: str | None, *, alone: bool, only_gib: Mapping[str | None, float] | None) -> str:
        """What a refusal calls the nodes of a partition; `alone`: no other one is in use."""
        if self.allocation is not None:
            where = "the allocation" if alone else f"the allocation in partition {partition}"
        else:
            where = f"partition {partition}" if partition else f"site {self.site.name}"
        return where if only_gib is None else f"{where} (GPUs of {only_gib[partition]:.1f} GiB or more)"

    def _where_of(self, workers: tuple[Wanted, ...], *, only_gib: Mapping[str | None, float] | None) -> str:
        partitions = tuple(dict.fromkeys(worker.partition for worker in workers))
        return " and ".join(self._where(one, alone=len(partitions) == 1, only_gib=only_gib) for one in partitions)

    def _candidates(self, partitions: Collection[str | None]) -> tuple[Candidate, ...]:
        """The granted nodes, or all, of these partitions; in the site's order."""
        owners = self._owners(partitions)
        if self.allocation is not None:
            granted = {node.name: node for node in self.allocation.nodes}
            for name in granted:
                self.fabric.node_type(name)
            return tuple(
                Candidate(
                    name=name,
                    gpus=tuple(sorted(gpu.index for gpu in granted[name].gpus)),
                    cores=granted[name].cores,
                    partition=owners[name],
                )
                for name in self.fabric.nodes
                if name in granted and name in owners
            )
        numbers = {count: tuple(range(count)) for kind in self.site.node_types.values() for count in _counts(kind)}
        return tuple(
            Candidate(name=name, gpus=numbers[kind.gpu.count], cores=numbers[kind.cores], partition=owners[name])
            for name in self.fabric.nodes
            if name in owners
            for kind in (self.fabric.node_type(name),)
        )

    def _owners(self, partitions: Collection[str | None]) -> dict[str, str | None]:
        """By node the partition that it is used for; where there is one only, whatever was granted is of it."""
        if self.allocation is not None and len(partitions) == 1:
            return dict.fromkeys((node.name for node in self.allocation.nodes), *partitions)
        return {name: partition for partition in partitions for name in self._nodes_of(partition)}

    def _nodes_of(self, partition: str | None) -> tuple[str, ...]:
        if partition is None:
            return self.fabric.nodes
        described = self.site.partitions.get(partition)
        if described is None:
            raise NotFoundError(
                f"site {self.site.name} has no partition `{partition}`",
                remedy=f"use one of {', '.join(self.site.partitions)}" if self.site.partitions else "write null",
            )
        return expand_hosts(described.hosts)

    def _promised(
        self, workers: tuple[Wanted, ...], candidates: tuple[Candidate, ...]
    ) -> dict[StageOf, tuple[str, tuple[int, ...]]]:
        """Nodes and GPUs that the asked plan gave, where the granted nodes have them all; else none."""
        if self.asked is None:
            return {}
        ranks = {(worker.id, stage): rank for worker in self.asked.workers for stage, rank in enumerate(worker.ranks)}
        if {worker.key for worker in workers} != set(ranks):
            return {}
        there = {(candidate.name, gpu) for candidate in candidates for gpu in candidate.gpus}
        if not all((rank.node, gpu) in there for rank in ranks.values() for gpu in rank.gpus):
            return {}
        return {stage: (rank.node, rank.gpus) for stage, rank in ranks.items()}

    def _router(self, used: set[str]) -> RouterSeat:
        """The router sits with the head agent: on the first granted node, or the first planned one before that."""
        if self.allocation is not None:
            head = self.allocation.nodes[0]
            return RouterSeat(node=head.name, port=router_port(self.service, head))
        return RouterSeat(node=next(node for node in self.fabric.nodes if node in used), port=self.service.router.port)


def _of(partition: str | None, candidates: Iterable[Candidate]) -> tuple[Candidate, ...]:
    return tuple(candidate for candidate in candidates if candidate.partition == partition)


def _counts(kind: NodeType) -> tuple[int, int]:
    return kind.gpu.count, kind.cores
