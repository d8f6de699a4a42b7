"""What follows from an outlook, in sentences."""

from collections.abc import Iterator, Sequence

from hpcserve.nouns import Ask, Chance, Granted, Plan, Service, Site
from hpcserve.site import grantable, hosts_of
from hpcserve.units import ms_text

__all__ = ["advice"]


def advice(chances: Sequence[Chance], *, plan: Plan, service: Service, site: Site, has_idle: bool) -> Iterator[str]:
    """Whether a constraint matters, and what waiting for it is worth against what is idle now."""
    alone = "no KV moves between workers" if plan.mode == "aggregated" else "all workers are on one node"
    if plan.mode == "aggregated" or plan.ask.nodes == 1:
        if len(_types(plan.ask, site)) > 1:
            yield f"{alone}: where the nodes are makes no difference; their types may, and are not weighed"
        else:
            yield f"{alone}: any nodes that Slurm grants give the same, ask for no constraint"
        return
    free = next((one for one in chances if one.constraint is None), None)
    if not has_idle:
        yield "which nodes are idle is not known: what is likely, and what waiting is worth, cannot be said"
    elif free is None or free.likely is None:
        yield "too few nodes are idle: the job waits in any case"
    else:
        yield _against(_most_promising(chances, plan), free.likely, service)
    yield from _remarks(chances, site)


def _most_promising(chances: Sequence[Chance], plan: Plan) -> Chance:
    """Of the constraints that leave Slurm a choice the one whose worst nodes are best; else the plan's very nodes."""

    def promise(chance: Chance) -> tuple[bool, float, float]:
        worst = chance.worst
        return worst.trouble is None, worst.goodput_per_s or 0.0, -(worst.slowest_transfer_ms or 0.0)

    by_name, *others = (one for one in chances if one.constraint is not None)
    return by_name if plan.ask.nodelist is not None else max(others, key=promise, default=by_name)


def _against(asked: Chance, now: Granted, service: Service) -> str:
    there = f"on {now.leaves} {'leaf' if now.leaves == 1 else 'leaves'}, idle now"
    words, worst = asked.constraint or "", asked.worst
    if now.trouble or worst.trouble:
        return f"{words}: {worst.trouble or 'can be placed'}; {there}: {now.trouble or 'can be placed'}"
    if now.goodput_per_s is None or worst.goodput_per_s is None:
        times = [ms_text(one.slowest_transfer_ms or 0.0) for one in (worst, now)]
        moved = f"{words}: at worst {times[0]} ms to move the KV (predicted); {there}: {times[1]} ms"
        return f"{moved}; --latency would say what that is worth"
    said = f"{words}: at worst {worst.goodput_per_s:.3g} good requests/s (simulated); {there}: {now.goodput_per_s:.3g}"
    if not asked.worth_waiting_min:
        return f"{said}; waiting gains nothing"
    return (
        f"{said}; if it makes you wait more than {asked.worth_waiting_min:.0f} minutes, take what is idle (over a job "
        f"of {service.time})"
    )


def _remarks(chances: Sequence[Chance], site: Site) -> Iterator[str]:
    """What no figure says of the constraints that are there, or are not."""
    asked = [one.constraint or "" for one in chances]
    if any(one.startswith("--switches") for one in asked):
        yield (
            "--switches is a wish: Slurm grants more leaves once the job has waited for max_switch_wait "
            "(scontrol show config; its default is 300 s)"
        )
    if "--exclusive=topo" in asked:
        yield "--exclusive=topo keeps other jobs' traffic out of the block, which no figure here counts"
    dialect = site.slurm
    if dialect is not None and dialect.topology == "block" and not dialect.has_segments:
        yield (
            "--segment and --exclusive=topo came with Slurm 24.05, and this is "
            f"{dialect.version or 'not known to be that new (slurm.version)'}: they are not asked for"
        )


def _types(ask: Ask, site: Site) -> set[str]:
    """The models of GPU that Slurm may grant."""
    hosts = hosts_of(site)
    return {hosts[name].gpu.model for name in grantable(ask.model_copy(update={"nodelist": None}), site)}
