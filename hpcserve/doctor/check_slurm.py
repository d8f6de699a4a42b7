"""Checks of Slurm as the login node sees it: whether it takes the jobs that the site file makes hpcserve write."""

from collections.abc import Iterator

from hpcserve.doctor.evidence import SlurmSeen, Wanted
from hpcserve.doctor.finding import Said, failure, fine, not_applicable, warning
from hpcserve.doctor.node_states import Standing, standing
from hpcserve.nouns import SlurmDialect
from hpcserve.site import fold_hosts, hosts_of
from hpcserve.site.slurm_text import topology_plugin

__all__ = ["slurm_commands", "slurm_dialect", "slurm_facts", "slurm_nodes"]

_NOT_SET = "(null)"


def slurm_commands(seen: SlurmSeen, _wanted: Wanted) -> Iterator[Said]:
    """Whether Slurm's commands are here and its controller answers."""
    if seen.missing:
        yield failure(
            f"no {', '.join(seen.missing)} on this host",
            why="jobs cannot be submitted from here, and the compute nodes were not looked at",
            remedy="run this on a login node, or load the module that brings Slurm",
        )
    elif seen.config_trouble:
        lines = [line.removeprefix("scontrol: ") for line in seen.config_trouble.splitlines()]
        yield failure(
            f"scontrol: {' / '.join(lines)}",
            why="jobs cannot be submitted",
            remedy="see whether slurmctld runs (`scontrol ping`)",
        )
    else:
        yield fine("Slurm answers")


def slurm_dialect(seen: SlurmSeen, _wanted: Wanted) -> Iterator[Said]:
    """Whether sbatch accepts a job with the options that the site file leads to, in every partition."""
    if not seen.tries:
        yield not_applicable("no partition was tried")
    for one in seen.tries:
        if one.refusal:
            yield failure(
                f"partition {one.partition}: sbatch refuses {' '.join(one.options)}: {one.refusal}",
                why="every submission fails like this",
                remedy="correct `slurm` or `partitions` in the site file; name an --account where one is needed",
            )
        else:
            yield fine(f"partition {one.partition} takes the site's jobs")


def slurm_facts(seen: SlurmSeen, wanted: Wanted) -> Iterator[Said]:
    """Whether version and topology plugin are those of the site file."""
    dialect = wanted.site.slurm
    if dialect is None or not seen.configuration:
        yield not_applicable("Slurm's configuration was not seen")
        return
    wrong = list(_other_facts(dialect, seen))
    yield from wrong
    if not wrong:
        yield fine("version and topology are those of the site file")


def _other_facts(dialect: SlurmDialect, seen: SlurmSeen) -> Iterator[Said]:
    version = seen.configuration.get("SLURM_VERSION", "")
    if dialect.version and version and not f"{version}.".startswith(f"{dialect.version}."):
        yield warning(
            f"Slurm is {version}, the site file says {dialect.version}",
            why="Slurm was changed since the site file was written: its other keys may be out of date too",
            remedy="correct `slurm.version` in the site file",
        )
    printed = seen.configuration.get("TopologyPlugin", "")
    plugin = topology_plugin(printed) or printed.rpartition("/")[2]
    if dialect.topology and plugin not in {"", _NOT_SET, dialect.topology}:
        yield warning(
            f"topology plugin is {plugin}, the site file says {dialect.topology}",
            why="Slurm may not keep a job's nodes together as the plan expects",
            remedy="correct `slurm.topology` in the site file",
        )
    if dialect.switches_option and plugin == "flat":
        yield warning(
            "Slurm has no topology plugin, and the site file says `switches_option: true`",
            why="--switches has no effect: nodes of one job may be under different leaves",
            remedy="correct `slurm.switches_option`, or configure topology/tree",
        )


def slurm_nodes(seen: SlurmSeen, wanted: Wanted) -> Iterator[Said]:
    """Nodes of the site that Slurm does not know or does not give to jobs."""
    if not seen.node_states:
        yield not_applicable("no node's state was seen")
        return
    names = tuple(hosts_of(wanted.site))
    unknown = [name for name in names if name not in seen.node_states]
    if unknown:
        yield failure(
            f"Slurm does not know {fold_hosts(unknown)}",
            why="plans may choose nodes that no job can get",
            remedy="correct `nodes` in the site file (`hpcserve site import`)",
        )
    away: dict[str, list[str]] = {}
    for name in names:
        if name in seen.node_states and standing(seen.node_states[name]) == Standing.AWAY:
            away.setdefault(seen.node_states[name].lower(), []).append(name)
    for state, those in away.items():
        yield warning(
            f"{fold_hosts(those)}: {state}",
            why="they take no job; they were not looked at",
            remedy="`scontrol show reservation` shows for whom they are kept"
            if state.startswith("resv")
            else "`sinfo -R` shows the reason",
        )
    if not unknown and not away:
        yield fine("Slurm has all nodes of the site, and they take jobs")
