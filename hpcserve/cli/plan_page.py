"""A plan as people read it."""

import shlex
from collections import Counter

from hpcserve.deploy import Planned
from hpcserve.draw import paths_table, plan_map
from hpcserve.nouns import Plan, Service
from hpcserve.site import expand_hosts, grantable

__all__ = ["modes_text", "pools_text", "shown_plan"]


def shown_plan(planned: Planned) -> str:
    """The plan as a map, a table of paths, the verdict (one sentence first, then why), and what Slurm is asked for."""
    placed = planned.plan
    sentence, *reasons = placed.verdict.reasons
    lines = [f"Verdict: {sentence}", *(f"  {reason}" for reason in reasons)]
    lines.append(modes_text(placed))
    if placed.ask.options:
        asked = " : ".join(shlex.join(ask.options) for ask in placed.asks)
        lines.append(f"Slurm is asked for: {asked}")
        lines += _several_types(planned)
    seats = plan_map(placed, leaf_of=planned.fabric.leaves_named) + _partitions_line(planned)
    return f"{seats}\n{paths_table(placed)}\n" + "\n".join(lines) + "\n"


def _partitions_line(planned: Planned) -> str:
    """Which worker is in which partition, where there are several."""
    if not planned.plan.further_asks:
        return ""
    found = []
    for ask in planned.plan.asks:
        hosts = expand_hosts(planned.site.partitions[ask.partition].hosts) if ask.partition is not None else ()
        workers = ", ".join(worker.id for worker in planned.plan.workers if worker.node in hosts)
        found.append(f"{ask.partition} ({workers})")
    return f"Partitions, a component of the job each: {', '.join(found)}\n"


def modes_text(plan: Plan) -> str:
    """The mode that was asked for and the one that is served, which is not always what the verdict advises."""
    return f"Mode asked for: {plan.asked_mode.value}; served: {plan.mode}."


def _several_types(planned: Planned) -> list[str]:
    """That Slurm may grant nodes of another type than the plan's, where a partition has such and none are named."""
    plan, site = planned.plan, planned.site
    type_of = {host: group.type for group in site.nodes for host in expand_hosts(group.hosts)}
    lines = []
    for ask in plan.asks:
        if ask.nodelist is not None or ask.partition is None:
            continue
        there = grantable(ask, site)
        types = Counter(type_of[name] for name in there)
        able = {name: count for name, count in types.items() if site.node_types[name].gpu.count >= ask.gpus_per_node}
        ranks = (rank for worker in plan.workers for rank in worker.ranks)
        used = dict.fromkeys(type_of[rank.node] for rank in ranks if rank.node in there)
        if set(able) <= set(used) and len(used) == 1:
            continue
        words = ", ".join(f"{count} {name}" for name, count in able.items())
        said = f"Partition {ask.partition} has nodes of several types ({words}), and Slurm may grant any of them"
        said = f"{said}; the plan is for {' and '.join(used)}."
        lines.append(said if plan.further_asks else f"{said} --allocations weighs the features that tell them apart.")
    return lines


def pools_text(service: Service) -> str:
    """The keys of a service file for the mode and the pools that were chosen, to be pasted there."""
    lines = ["These pools, as the service file says them:", f"mode: {service.mode.value}", "pools:"]
    for pool in service.pools:
        lines += [
            f"  - role: {pool.role.value}",
            f"    workers: {pool.workers}",
            f"    tensor_parallel: {pool.tensor_parallel}",
        ]
        if pool.pipeline_parallel > 1:
            lines.append(f"    pipeline_parallel: {pool.pipeline_parallel}")
        if pool.partition is not None:
            lines.append(f"    partition: {pool.partition}")
        if pool.args or pool.env:
            lines.append("    # with the args and env of the pool that was there")
    return "\n".join(lines) + "\n"
