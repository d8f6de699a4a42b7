"""`weigh`: the plan whose mode, and where it is asked for whose shape, the simulation has chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric
from hpcserve.nouns import Comparison, ModelShape, NodeType, Plan, Service, Site
from hpcserve.placement.demand import has_both_phases, most_needed_gib, workers_of
from hpcserve.placement.place import place
from hpcserve.placement.shape import Shape, as_written, shapes_for
from hpcserve.placement.shape_speeds import Speed, speeds_for
from hpcserve.placement.shape_trial import Bench
from hpcserve.placement.shape_tried import Tried
from hpcserve.site import expand_hosts

__all__ = ["Weighed", "weigh"]

_SIMULATED = 6
"""Shapes of each mode that are simulated, the best by formulas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """The service with the pools that were chosen, and all that was considered; the plan is in it."""

    service: Service
    comparison: Comparison


def weigh(
    *,
    fabric: Fabric,
    site: Site,
    shape: ModelShape,
    service: Service,
    speeds: Sequence[Speed],
    gpus: int | None = None,
    alternatives: bool = False,
    seed: int = 0,
) -> Weighed:
    """The best plan by goodput per GPU under the SLO, simulated with the latency models `speeds`.

    The service's own pools are judged as they are; with `gpus`, pools for so many GPUs are chosen. `alternatives`:
    shapes for as many GPUs as the own pools take are simulated too, to be shown. Mode `auto` follows the simulation,
    the other two are obeyed and judged. Raises PlacementError where nothing can be placed, or other shapes are wanted
    of pools on several partitions; NotFoundError where a pool has no latency model of its parallelism.
    """
    if len(service.partitions) > 1 and (gpus is not None or alternatives):
        raise PlacementError(
            f"pools are chosen for one partition's GPUs, and service {service.name} uses {len(service.partitions)}",
            remedy="leave out --gpus and --compare: the pools as written are simulated, each with its partition's GPUs",
        )
    every = {partition: _nodes_of(fabric, site, partition) for partition in service.partitions}
    nodes = every if gpus is not None else _large_enough(every, fabric, shape, service)
    kinds = {partition: _kind_of(names, fabric, largest=gpus is not None) for partition, names in nodes.items()}
    bench = Bench(
        place=partial(_placed, fabric, site, shape),
        fabric=fabric,
        model=shape,
        service=service,
        kinds=kinds,
        speeds={
            partition: speeds_for(speeds, shape=shape, service=service, kind=kind) for partition, kind in kinds.items()
        },
        gpus=gpus or 0,
        seed=seed,
    )
    there = sum(fabric.node_type(name).gpu.count for names in nodes.values() for name in names)
    if gpus is not None and gpus > there:
        where = f"partition {service.partitions[0]}" if service.partitions[0] else f"site {site.name}"
        raise PlacementError(f"{gpus} GPUs were asked for, and {where} has {there}", remedy=f"ask for at most {there}")
    own = _own_shapes(service)
    budget = gpus or max(one.gpus for one in own)
    others: list[Shape] = []
    left_out: tuple[str, ...] = ()
    if gpus is not None or alternatives:
        others, left_out = _best_by_formulas(bench, budget)
    tried = Tried(bench, [*(own if gpus is None else ()), *others])
    eligible = {one.key for one in (own if gpus is None else others)}
    if not eligible:
        raise PlacementError(
            f"no shape of {gpus} GPUs can be judged: {'; '.join(left_out) or 'the model fits in none'}",
            remedy="give a --latency for a parallelism that fits, or more GPUs",
        )
    chosen, verdict = tried.choose(eligible, gpus=gpus or there)
    plan = chosen.plan.model_copy(update={"asked_mode": service.mode, "verdict": verdict})
    return Weighed(
        service=service if gpus is None else chosen.shape.service(service),
        comparison=Comparison(
            service=service.name,
            site=site.name,
            slo=service.slo,
            workload=service.workload,
            gpus=budget,
            seed=seed,
            sources=bench.sources,
            left_out=left_out,
            alternatives=tried.rows({one.key for one in own}, chosen),
            plan=plan,
        ),
    )


def _placed(fabric: Fabric, site: Site, shape: ModelShape, service: Service) -> Plan:
    return place(fabric=fabric, site=site, shape=shape, service=service)


def _nodes_of(fabric: Fabric, site: Site, name: str | None) -> list[str]:
    """The partition's nodes; all of the site's for None."""
    partition = site.partitions.get(name) if name else None
    names = set(expand_hosts(partition.hosts)) if partition is not None else set(fabric.nodes)
    return [name for name in fabric.nodes if name in names]


def _large_enough(
    nodes: Mapping[str | None, list[str]], fabric: Fabric, shape: ModelShape, service: Service
) -> dict[str | None, list[str]]:
    """The nodes that placement uses: without those whose GPUs are too small; all where no GPU is large enough."""
    workers = [worker for mode in ("disaggregated", "aggregated") for worker in workers_of(service, mode)]
    needed = most_needed_gib(workers, shape, service)
    return {
        partition: [name for name in names if fabric.node_type(name).gpu.memory_gib >= needed.get(partition, 0.0)]
        or names
        for partition, names in nodes.items()
    }


def _kind_of(names: list[str], fabric: Fabric, *, largest: bool) -> NodeType:
    """The type that says how large steps are and what fits: of the first node, or of the first with largest GPUs."""
    kinds = [fabric.node_type(name) for name in names]
    return max(kinds, key=lambda kind: kind.gpu.memory_gib) if largest else kinds[0]


def _own_shapes(service: Service) -> list[Shape]:
    """The service's pools in both modes, as far as it has them."""
    separate = [as_written(service, "disaggregated")] if has_both_phases(service) else []
    return [*separate, as_written(service, "aggregated")]


def _best_by_formulas(bench: Bench, gpus: int) -> tuple[list[Shape], tuple[str, ...]]:
    """Of each mode the few shapes that formulas put first; and what was left out."""
    (where,) = bench.service.partitions
    found, left_out = shapes_for(
        gpus, service=bench.service, model=bench.model, kind=bench.kinds[where], speeds=bench.speeds[where]
    )
    best: list[Shape] = []
    for mode in ("disaggregated", "aggregated"):
        ranked = sorted(
            (one for one in found if one.mode == mode),
            key=lambda one: (-bench.quick(one) / max(one.gpus, bench.gpus), one.gpus, one.name),
        )
        best += ranked[:_SIMULATED]
    return best, left_out
