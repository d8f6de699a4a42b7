"""One allocation for every placement in turn: as few nodes as the greedy search below finds."""

from collections.abc import Iterator

from hpcserve.deploy import Planned, check_startable
from hpcserve.errors import PlacementError
from hpcserve.nouns import Ask, Mode, Plan, Service, Site, Sweep, SweepPlacement
from hpcserve.placement import place
from hpcserve.site import expand_hosts, fold_hosts
from hpcserve.sweep.results import PlacementOrder

__all__ = ["service_of", "share", "shared_plan"]


def service_of(service: Service, placement: SweepPlacement) -> Service:
    """The service in the mode and at the distance of one placement."""
    return service.model_copy(update={"mode": Mode(placement.mode), "distance": placement.distance})


def share(sweep: Sweep, planned: Planned) -> tuple[PlacementOrder, ...]:
    """Where each placement sits, on nodes that they share as far as they can.

    The placement with the most nodes comes first; each other one goes onto nodes that are taken already, else onto
    those and one node more, then two, leaf by leaf; else wherever it fits. One that the site cannot realise says so.
    Raises PlacementError for a service over several partitions.
    """
    used = planned.service.partitions
    if len(used) > 1:
        raise PlacementError(
            f"service {planned.service.name} uses partitions {' and '.join(map(str, used))}, and a sweep has one "
            "allocation, in one partition: submitit cannot ask for a job of several components",
            remedy="sweep a service of one partition",
        )
    free = {placement.name: _free(planned, placement) for placement in sweep.placements}
    taken: tuple[str, ...] = ()
    chosen: dict[str, PlacementOrder] = {}
    for placement in sorted(sweep.placements, key=lambda each: -_nodes(free[each.name])):
        first = free[placement.name]
        plan = None if isinstance(first, str) else (_squeezed(planned, placement, taken, first) if taken else first)
        reason = first if isinstance(first, str) else ""
        chosen[placement.name] = PlacementOrder(placement=placement, plan=plan and _exactly(plan), reason=reason)
        taken = tuple(dict.fromkeys((*taken, *(plan.nodes if plan else ()))))
    return tuple(chosen[placement.name] for placement in sweep.placements)


def shared_plan(orders: tuple[PlacementOrder, ...]) -> Plan:
    """A plan that asks for all nodes of all placements; raises PlacementError where none can be realised."""
    plans = [order.plan for order in orders if order.plan is not None]
    if not plans:
        reasons = "; ".join(f"{order.placement.name}: {order.reason}" for order in orders)
        raise PlacementError(f"no placement of the sweep can be realised: {reasons}")
    nodes = tuple(sorted({node for plan in plans for node in plan.nodes}))
    gpus = max(plan.ask.gpus_per_node for plan in plans)
    return plans[0].model_copy(update={"ask": _ask(plans[0], nodes, gpus)})


def _exactly(plan: Plan) -> Plan:
    """The plan, asking for its very nodes."""
    return plan.model_copy(update={"ask": _ask(plan, plan.nodes, plan.ask.gpus_per_node)})


def _ask(plan: Plan, nodes: tuple[str, ...], gpus_per_node: int) -> Ask:
    return Ask(
        partition=plan.ask.partition,
        nodes=len(nodes),
        gpus_per_node=gpus_per_node,
        nodelist=nodes if plan.ask.partition is not None else None,
        exclude=tuple(node for node in plan.ask.exclude if node not in nodes),
    )


def _free(planned: Planned, placement: SweepPlacement) -> Plan | str:
    """The best plan anywhere, or why there is none."""
    try:
        return _place(planned, placement, planned.site)
    except PlacementError as error:
        return str(error)


def _nodes(plan: Plan | str) -> int:
    return 0 if isinstance(plan, str) else len(plan.nodes)


def _squeezed(planned: Planned, placement: SweepPlacement, taken: tuple[str, ...], free: Plan) -> Plan:
    """A plan on the taken nodes and as few more as possible; `free` where no such is found."""
    (partition,) = planned.service.partitions
    if partition is None:
        return free
    for nodes in (taken, *_grown(planned, taken, partition, most=len(free.nodes))):
        hosts = planned.site.partitions[partition].model_copy(update={"hosts": fold_hosts(nodes)})
        narrow = planned.site.model_copy(update={"partitions": {**planned.site.partitions, partition: hosts}})
        try:
            return _place(planned, placement, narrow)
        except PlacementError:
            continue
    return free


def _grown(planned: Planned, taken: tuple[str, ...], partition: str, *, most: int) -> Iterator[tuple[str, ...]]:
    """The taken nodes and one more, of each leaf in turn; then two more; up to `most`."""
    leaves: dict[str, list[str]] = {}
    for node in expand_hosts(planned.site.partitions[partition].hosts):
        if node not in taken:
            leaves.setdefault(planned.fabric.leaf_of(node), []).append(node)
    for more in range(1, most + 1):
        for nodes in leaves.values():
            if len(nodes) >= more:
                yield (*taken, *nodes[:more])


def _place(planned: Planned, placement: SweepPlacement, site: Site) -> Plan:
    service = service_of(planned.service, placement)
    plan = place(fabric=planned.fabric, site=site, shape=planned.shape, service=service)
    check_startable(service, plan)
    return plan
