"""The `#SBATCH` options of a job, each as one line of the script."""

import re
import shlex
from collections.abc import Iterator

from hpcserve.errors import PlacementError
from hpcserve.nouns import Ask, NodeType, Plan, Service, Site, SlurmDialect
from hpcserve.render.shell import ShellText
from hpcserve.site import fold_hosts, grantable, hosts_of
from hpcserve.units import duration_s

__all__ = [
    "STOP_SIGNAL_S",
    "asked_options",
    "cpus_per_node",
    "directive_lines",
    "gpu_options",
    "log_option_path",
    "quoted_option",
    "with_options",
]

STOP_SIGNAL_S = 60
"""Seconds before the time limit at which Slurm tells the script to stop; sbatch(1): it may come up to 60 s early."""

_FOR_THE_SCRIPT = ("--job-name=", "--no-kill", "--output=", "--open-mode=", "--signal=")
"""Options that do not decide which nodes a job gets, and when."""
_SHORTEST_TIME_S = 3 * STOP_SIGNAL_S
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]-]+")
_LONGEST_OPTION = 8000  # sbatch reads an option into a buffer of BUFSIZ (8192) bytes (src/sbatch, _get_argument)


_SHORTER = {
    "--nodelist": "use fewer nodes",
    "--exclude": "choose a partition in which fewer nodes are too small for the model",
}
"""What makes an option shorter that is longer than sbatch reads."""


def directive_lines(*, plan: Plan, site: Site, service: Service, directory: str) -> tuple[ShellText, ...]:
    """Every `#SBATCH` option of the job, in order, quoted as sbatch reads it; the site's own come last and win.

    A plan over several partitions is a heterogeneous job: a component for each, `hetjob` between them. Raises
    PlacementError where sbatch could not carry a value, or the time limit leaves no time to serve.
    """
    _refuse_short_time(service.time)
    lines: list[ShellText] = []
    for ask in plan.asks:
        if lines:
            lines.append(ShellText("hetjob"))
        lines += _component(ask, site=site, service=service, directory=directory, has_script=not lines)
    return tuple(lines)


def _component(ask: Ask, *, site: Site, service: Service, directory: str, has_script: bool) -> Iterator[ShellText]:
    """The options of a job, or of one component of it; only the first runs the script and has its log and signal."""
    dialect = _dialect(site)
    _refuse_too_many(ask, site, service)
    options = [f"--job-name={directory.rpartition('/')[2]}"]
    if ask.partition is not None:
        options.append(f"--partition={ask.partition}")
    if service.account is not None:
        options.append(f"--account={service.account}")
    options += [f"--time={service.time}", f"--nodes={ask.nodes + service.spares}"]
    if ask.nodelist is not None:
        options.append(f"--nodelist={','.join(ask.nodelist)}")
    if ask.exclude:
        options.append(f"--exclude={fold_hosts(ask.exclude)}")
    if ask.switches is not None and dialect.switches_option:
        # a leaf may have no room for the spares too
        options.append(f"--switches={ask.switches + (1 if service.spares else 0)}")
    if ask.segment is not None:
        options.append(f"--segment={ask.segment}")
    options += gpu_options(ask=ask, site=site)
    if _is_exclusive(ask, site):
        options += ["--exclusive", "--mem=0"]
    options += ["--ntasks-per-node=1", f"--cpus-per-task={cpus_per_node(ask=ask, site=site)}", "--no-kill"]
    if has_script:
        options += [
            f"--output={log_option_path(directory)}",
            "--open-mode=append",
            f"--signal=B:TERM@{STOP_SIGNAL_S}",
        ]
    yield from map(quoted_option, options)
    yield from map(ShellText, dialect.directives)


def with_options(plan: Plan, *, site: Site, service: Service) -> Plan:
    """The plan with the options of sbatch in what it asks for; raises PlacementError as `directive_lines` does."""
    ask, *further = (
        one.model_copy(update={"options": _asked_options(one, site=site, service=service)}) for one in plan.asks
    )
    return plan.model_copy(update={"ask": ask, "further_asks": tuple(further)})


def asked_options(*, plan: Plan, site: Site, service: Service) -> tuple[str, ...]:
    """The options of sbatch that decide which nodes the job gets and when, as words; the site's own are among them.

    Of the first component, where there are several. Raises PlacementError as `directive_lines` does.
    """
    return _asked_options(plan.ask, site=site, service=service)


def _asked_options(ask: Ask, *, site: Site, service: Service) -> tuple[str, ...]:
    _refuse_short_time(service.time)
    lines = _component(ask, site=site, service=service, directory=service.name, has_script=True)
    return tuple(word for line in lines for word in _words(line) if not word.startswith(_FOR_THE_SCRIPT))


def _words(line: str) -> list[str]:
    """The words of a line; one of a site's own that no shell could read is one word."""
    try:
        return [word for word in shlex.split(line) if word]
    except ValueError:
        return [line]


def gpu_options(*, ask: Ask, site: Site) -> tuple[str, ...]:
    """How this Slurm is asked for GPUs, for sbatch and srun alike; empty where whole nodes are asked for."""
    named = {kind.gpu.gres for kind in _types(ask, site)}
    only = named.pop() if len(named) == 1 else None
    count = f"{only}:{ask.gpus_per_node}" if only is not None else f"{ask.gpus_per_node}"
    match _dialect(site).gpu_request:
        case "gres":
            return (f"--gres=gpu:{count}",)
        case "gpus-per-node":
            return (f"--gpus-per-node={count}",)
        case "none":
            return ()


def cpus_per_node(*, ask: Ask, site: Site) -> int:
    """Cores asked for on each node: all of the smallest that may be granted, or the share that goes with the GPUs."""
    types = _types(ask, site)
    if _is_exclusive(ask, site):
        return min(kind.cores for kind in types)
    return max(1, min(kind.cores * ask.gpus_per_node // kind.gpu.count for kind in types))


def _types(ask: Ask, site: Site) -> list[NodeType]:
    """The type of each node that may be granted."""
    hosts = hosts_of(site)
    return [hosts[name] for name in grantable(ask, site)]


def _is_exclusive(ask: Ask, site: Site) -> bool:
    """Whether whole nodes are asked for: as the partition says, else as the site does."""
    dialect = _dialect(site)
    partition = site.partitions.get(ask.partition) if ask.partition is not None else None
    if partition is None or partition.exclusive is None:
        return dialect.exclusive
    return partition.exclusive


def _refuse_too_many(ask: Ask, site: Site, service: Service) -> None:
    partition = site.partitions.get(ask.partition) if ask.partition is not None else None
    nodes = ask.nodes + service.spares
    if partition is not None and partition.max_nodes is not None and nodes > partition.max_nodes:
        raise PlacementError(
            f"{nodes} nodes, and partition {ask.partition} gives a job {partition.max_nodes} at most",
            remedy="ask for fewer workers or spares, or for another partition",
        )


def _dialect(site: Site) -> SlurmDialect:
    if site.slurm is None:
        raise PlacementError(
            f"site {site.name} has no Slurm", remedy="use --launcher local, or describe its Slurm under `slurm:`"
        )
    return site.slurm


def _refuse_short_time(time: str) -> None:
    if duration_s(time) < _SHORTEST_TIME_S:
        raise PlacementError(
            f"time {time} leaves no time to serve: the job is told to stop {STOP_SIGNAL_S} s before its end",
            remedy=f"ask for {_SHORTEST_TIME_S // 60} minutes or more",
        )


def log_option_path(directory: str) -> str:
    """The log's path, with `%` doubled: sbatch(1), FILENAME PATTERN. A backslash would switch the patterns off."""
    if "\\" in directory:
        raise PlacementError(
            f"job directory {directory!r} contains a backslash, which sbatch cannot carry in --output",
            remedy="choose another --jobs-dir",
        )
    return f"{directory.replace('%', '%%')}/logs/slurm.out"


def quoted_option(option: str) -> ShellText:
    """One option as `#SBATCH` lines carry it: words in double quotes, in which a backslash takes the next one as it is.

    Source: `_get_argument` of sbatch (Slurm 22.05 to 25.11), and tried on 22.05.8. There is no way to write a line end.
    """
    if any(mark in option for mark in "\n\r\0"):
        raise PlacementError(
            f"{option!r} contains a line end or NUL, which no #SBATCH line can carry",
            remedy="take it out where it was given: the service, the site, an option, or the directory's name",
        )
    if len(option.encode()) > _LONGEST_OPTION:
        raise PlacementError(
            f"#SBATCH {option[:60]}... is longer than {_LONGEST_OPTION} bytes, more than sbatch reads",
            remedy=_SHORTER.get(option.partition("=")[0], "give it a shorter value"),
        )
    if _PLAIN.fullmatch(option):
        return ShellText(option)
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return ShellText(f'"{escaped}"')
