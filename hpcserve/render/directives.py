"""The `#SBATCH` options of a job, each as one line of the script."""

import re

from hpcserve.errors import PlacementError
from hpcserve.nouns import Plan, Service, Site, SlurmDialect
from hpcserve.render.shell import ShellText
from hpcserve.site import expand_hosts, hosts_of
from hpcserve.units import duration_s

__all__ = ["STOP_SIGNAL_S", "cpus_per_node", "directive_lines", "gpu_options"]

STOP_SIGNAL_S = 60
"""Seconds before the time limit at which Slurm tells the script to stop; sbatch(1): it may come up to 60 s early."""

_SHORTEST_TIME_S = 3 * STOP_SIGNAL_S
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]-]+")
_LONGEST_OPTION = 8000  # sbatch reads an option into a buffer of BUFSIZ (8192) bytes (src/sbatch, _get_argument)


def directive_lines(*, plan: Plan, site: Site, service: Service, directory: str) -> tuple[ShellText, ...]:
    """Every `#SBATCH` option of the job, in order, quoted as sbatch reads it; the site's own come last and win.

    Raises PlacementError where sbatch could not carry a value, or the time limit leaves no time to serve.
    """
    dialect = _dialect(site)
    _refuse_short_time(service.time)
    ask = plan.ask
    options = [f"--job-name={directory.rpartition('/')[2]}"]
    if ask.partition is not None:
        options.append(f"--partition={ask.partition}")
    if service.account is not None:
        options.append(f"--account={service.account}")
    options += [f"--time={service.time}", f"--nodes={ask.nodes}"]
    if ask.nodelist is not None:
        options.append(f"--nodelist={','.join(ask.nodelist)}")
    if ask.switches is not None and dialect.switches_option:
        options.append(f"--switches={ask.switches}")
    options += gpu_options(plan=plan, site=site)
    if dialect.exclusive:
        options += ["--exclusive", "--mem=0"]
    options += [
        "--ntasks-per-node=1",
        f"--cpus-per-task={cpus_per_node(plan=plan, site=site)}",
        "--no-kill",
        f"--output={_output(directory)}",
        "--open-mode=append",
        f"--signal=B:TERM@{STOP_SIGNAL_S}",
    ]
    return tuple([_quoted(option) for option in options] + [ShellText(line) for line in dialect.directives])


def gpu_options(*, plan: Plan, site: Site) -> tuple[str, ...]:
    """How this Slurm is asked for the plan's GPUs, for sbatch and srun alike; empty where whole nodes are asked for."""
    match _dialect(site).gpu_request:
        case "gres":
            return (f"--gres=gpu:{plan.ask.gpus_per_node}",)
        case "gpus-per-node":
            return (f"--gpus-per-node={plan.ask.gpus_per_node}",)
        case "none":
            return ()


def cpus_per_node(*, plan: Plan, site: Site) -> int:
    """Cores asked for on each node: all of the smallest that may be granted, or the share that goes with the GPUs."""
    hosts = hosts_of(site)
    if plan.ask.nodelist is not None:
        names = plan.ask.nodelist
    elif plan.ask.partition is not None:
        names = expand_hosts(site.partitions[plan.ask.partition].hosts)
    else:
        names = tuple(hosts)
    types = [hosts[name] for name in names]
    if _dialect(site).exclusive:
        return min(kind.cores for kind in types)
    return max(1, min(kind.cores * plan.ask.gpus_per_node // kind.gpu.count for kind in types))


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


def _output(directory: str) -> str:
    """The log's path, with `%` doubled: sbatch(1), FILENAME PATTERN. A backslash would switch the patterns off."""
    if "\\" in directory:
        raise PlacementError(
            f"job directory {directory!r} contains a backslash, which sbatch cannot carry in --output",
            remedy="choose another --jobs-dir",
        )
    return f"{directory.replace('%', '%%')}/logs/slurm.out"


def _quoted(option: str) -> ShellText:
    """One option as `#SBATCH` lines carry it: words in double quotes, in which a backslash takes the next one as it is.

    Source: `_get_argument` of sbatch (Slurm 22.05 to 25.11), and tried on 22.05.8. There is no way to write a line end.
    """
    if any(mark in option for mark in "\n\r\0"):
        raise PlacementError(
            f"{option!r} contains a line end or NUL, which no #SBATCH line can carry",
            remedy="remove it from the service or choose another directory",
        )
    if len(option.encode()) > _LONGEST_OPTION:
        raise PlacementError(
            f"#SBATCH {option[:60]}... is longer than {_LONGEST_OPTION} bytes, more than sbatch reads",
            remedy="name fewer nodes",
        )
    if _PLAIN.fullmatch(option):
        return ShellText(option)
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return ShellText(f'"{escaped}"')
