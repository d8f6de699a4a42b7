"""What Slurm may grant a plan: the outlook, with what Slurm itself says where it answers."""

import re

from hpcserve.deploy import Planned
from hpcserve.nouns import Chance, Outlook
from hpcserve.placement import outlook
from hpcserve.render import asked_options
from hpcserve.scheduler import estimated_start, idle_nodes, jobless_nodes

__all__ = ["outlook_of"]

_EITHER = re.compile(r"--constraint=.*\[")


def outlook_of(planned: Planned) -> Outlook:
    """The outlook of a plan; asks Slurm for idle nodes and estimates, and goes without where it does not answer."""
    partition, dialect = planned.plan.ask.partition, planned.site.slurm
    idle = idle_nodes(partition) if partition is not None and dialect is not None else None
    found = outlook(
        fabric=planned.fabric,
        site=planned.site,
        shape=planned.shape,
        service=planned.service,
        plan=planned.plan,
        speeds=planned.speeds,
        idle=idle,
        jobless=jobless_nodes() if idle is not None and dialect is not None and dialect.has_segments else None,
    )
    if idle is None:
        return found
    return found.model_copy(update={"chances": tuple(_with_start(planned, chance) for chance in found.chances)})


def _with_start(planned: Planned, chance: Chance) -> Chance:
    """With Slurm's estimate for this way to ask.

    None for `[a|b]`: Slurm 22.05 keeps that when it grants nodes, but estimates as though they could be of both.
    """
    if chance.constraint is not None and _EITHER.search(chance.constraint):
        return chance
    ask = planned.plan.ask.model_copy(update={"nodelist": None, "switches": None, "segment": None})
    bare = planned.plan.model_copy(update={"ask": ask})
    options = [*asked_options(plan=bare, site=planned.site, service=planned.service)]
    if chance.constraint is not None:
        options.append(chance.constraint)  # behind the site's own, as the last one counts
    return chance.model_copy(update={"estimated_start": estimated_start(options)})
