"""`outlook`: what each way to ask Slurm for nodes would give, and what waiting for it is worth."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric
from hpcserve.nouns import Chance, Granted, ModelShape, Outlook, Plan, Service, Site
from hpcserve.placement.allocations_advice import advice
from hpcserve.placement.allocations_ways import Openings, Way, Ways
from hpcserve.placement.place import place
from hpcserve.placement.shape import as_written
from hpcserve.placement.shape_speeds import Speed, speeds_for
from hpcserve.placement.shape_trial import NOTICED, Bench
from hpcserve.site import expand_hosts, fold_hosts, grantable
from hpcserve.units import duration_s

__all__ = ["outlook"]


def outlook(
    *,
    fabric: Fabric,
    site: Site,
    shape: ModelShape,
    service: Service,
    plan: Plan,
    speeds: Sequence[Speed] = (),
    idle: Collection[str] | None = None,
    jobless: Collection[str] | None = None,
) -> Outlook:
    """What Slurm may grant the plan for each way to ask; goodput where there are latency models.

    `idle`: the nodes of the partition that Slurm reports idle; None: it was not asked or did not answer. `jobless`: the
    nodes of the cluster that hold no job; None likewise. Raises PlacementError where the service names no partition of
    the site: then Slurm grants nothing; and for several.
    """
    if plan.further_asks:
        raise PlacementError(
            f"what Slurm may grant is looked at for one partition, and the plan of {service.name} uses "
            f"{len(plan.asks)}",
            remedy="plan without --allocations",
        )
    name = plan.ask.partition
    partition = site.partitions.get(name) if name else None
    if partition is None:
        raise PlacementError(f"service {service.name} names no partition: Slurm grants it nothing", remedy="name one")
    present = set(grantable(plan.ask.model_copy(update={"nodelist": None}), site))
    used = {rank.node for worker in plan.workers for rank in worker.ranks}
    count = plan.ask.nodes + service.spares
    openings = None
    if idle is not None:
        openings = Openings(idle=frozenset(idle), jobless=None if jobless is None else frozenset(jobless))
    ways = Ways(
        ask=plan.ask,
        count=count,
        planned=tuple(name for name in fabric.nodes if name in used),
        names=tuple(name for name in fabric.nodes if name in present & _eligible(plan, fabric, site)),
        fabric=fabric,
        site=site,
        openings=openings,
    )
    case = _Case(fabric=fabric, site=site, shape=shape, service=service, plan=plan, speeds=tuple(speeds))
    chances = _with_worth([case.chance(way) for way in ways.all()], service)
    return Outlook(
        service=service.name,
        site=site.name,
        asked_nodes=count,
        idle_nodes=None if openings is None else len(present & openings.idle),
        chances=chances,
        advice=tuple(advice(chances, plan=plan, service=service, site=site, has_idle=idle is not None)),
    )


def _eligible(plan: Plan, fabric: Fabric, site: Site) -> set[str]:
    """Nodes with as many GPUs as are asked for, and with the features that the site asks for in every job."""
    able = {name for name in fabric.nodes if fabric.node_type(name).gpu.count >= plan.ask.gpus_per_node}
    own = site.slurm.constraint if site.slurm is not None else None
    for feature in own.split("&") if own is not None else ():
        having = {host for group in site.nodes if feature in group.features for host in expand_hosts(group.hosts)}
        able &= having or able  # a feature of which the site file says nothing
    return able


@dataclass(frozen=True, kw_only=True)
class _Case:
    fabric: Fabric
    site: Site
    shape: ModelShape
    service: Service
    plan: Plan
    speeds: tuple[Speed, ...]

    def chance(self, way: Way) -> Chance:
        """What the plan's pools would give for this way to ask."""
        return Chance(
            constraint=way.constraint,
            worst=self._granted(way.worst),
            likely=None if way.likely is None else self._granted(way.likely),
            best=self._granted(way.best),
        )

    @cached_property
    def _known(self) -> dict[tuple[str, ...], Granted]:
        return {}

    def _granted(self, nodes: tuple[str, ...]) -> Granted:
        if nodes not in self._known:
            self._known[nodes] = self._given(nodes)
        return self._known[nodes]

    def _given(self, nodes: tuple[str, ...]) -> Granted:
        """What becomes of the plan's pools on these nodes alone; of more than are asked for on those that it takes."""
        partitions = dict(self.site.partitions)
        name = self.plan.ask.partition or ""
        partitions[name] = partitions[name].model_copy(update={"hosts": fold_hosts(nodes)})
        there = self.site.model_copy(update={"partitions": partitions})

        def placed(service: Service) -> Plan:
            return place(fabric=self.fabric, site=there, shape=self.shape, service=service)

        shape = as_written(self.service, self.plan.mode)
        try:
            if not self.speeds:
                plan, goodput = placed(shape.service(self.service)), None
            else:
                trial = self._bench(placed).run(shape)
                plan, goodput = trial.plan, trial.rate
        except PlacementError as error:
            return Granted(nodes=nodes, leaves=self._leaves(nodes), trouble=error.message)
        taken = nodes if len(nodes) <= self.plan.ask.nodes + self.service.spares else plan.nodes
        slowest = max((path.transfer_ms for path in plan.paths), default=None)
        return Granted(nodes=taken, leaves=self._leaves(taken), slowest_transfer_ms=slowest, goodput_per_s=goodput)

    def _leaves(self, nodes: Sequence[str]) -> int:
        return len({self.fabric.leaf_of(node) for node in nodes})

    def _bench(self, placed: Callable[[Service], Plan]) -> Bench:
        kind = self.fabric.node_type(self.plan.workers[0].node)
        where = self.plan.ask.partition
        return Bench(
            place=placed,
            fabric=self.fabric,
            model=self.shape,
            service=self.service,
            kinds={where: kind},
            speeds={where: speeds_for(self.speeds, shape=self.shape, service=self.service, kind=kind)},
        )


def _with_worth(chances: Sequence[Chance], service: Service) -> tuple[Chance, ...]:
    """With the longest wait that each makes up for, by the least that it promises.

    Over the job's time T from now, a wait W for goodput g serves g (T - W), and what would be granted now without any
    constraint l T: they are equal at W = T (1 - l / g). Where a load is expected, no more than that is served.
    """
    free = next((one.likely for one in chances if one.constraint is None), None)
    if free is None or free.goodput_per_s is None:
        return tuple(chances)
    now = free.goodput_per_s
    load = service.workload.requests_per_s
    minutes = duration_s(service.time) / 60

    def worth(chance: Chance) -> float | None:
        if chance.constraint is None or chance.worst.goodput_per_s is None:
            return None
        served, otherwise = (min(rate, load or rate) for rate in (chance.worst.goodput_per_s, now))
        if served <= otherwise * (1 + NOTICED):
            return 0.0
        return minutes * (1 - otherwise / served)

    return tuple(chance.model_copy(update={"worth_waiting_min": worth(chance)}) for chance in chances)
