"""A measuring errand and its templates -> the files of its job directory and the command that submits it."""

import math
from collections.abc import Mapping, Sequence

from hpcserve.errors import PlacementError
from hpcserve.nouns import Job, JobFile, RuntimeKind, Site, SlurmDialect
from hpcserve.render.directives import log_option_path, quoted_option
from hpcserve.render.runtime import HPCSERVE, runtime_files
from hpcserve.render.shell import ShellText
from hpcserve.render.templates import render_template
from hpcserve.site import fold_hosts, hosts_of

__all__ = ["MEASURE_TEMPLATE_NAMES", "measuring_dialect", "render_measurement"]

MEASURE_TEMPLATE_NAMES = ("measure.sbatch.j2", "runtime.sh.j2")

_ENGINE = "vllm"
"""The runtime that has NIXL."""
_ATTEMPTS = 2
_SLACK_MINUTES = 1
"""Between the end of the steps and that of the job, for Slurm to end what hangs."""


def render_measurement(
    *,
    about: str,
    site: Site,
    nodes: Sequence[str],
    ranks_per_node: int,
    limit_s: int,
    partition: str | None,
    account: str | None,
    texts: Mapping[str, str],
    templates: Mapping[str, str],
    directory: str,
    python_folder: str,
) -> Job:
    """Everything that stands in the job directory of a measurement, and how it is submitted.

    `limit_s` is what one attempt may take, `texts` are files to keep by path, `directory` is absolute. Raises
    PlacementError where the site's Slurm cannot be asked for this, InputError with a template's line.
    """
    dialect = measuring_dialect(site)
    for name in (HPCSERVE, _ENGINE):
        if name not in site.runtimes:
            raise PlacementError(
                f"site {site.name} does not say how the runtime `{name}` is entered",
                remedy=f"add `{name}:` under `runtimes` in the site file",
            )
    step_minutes = math.ceil(limit_s / 60)
    gpus = _gpu_options(site, dialect, nodes)
    options = [f"--job-name={directory.rpartition('/')[2]}"]
    if partition is not None:
        options.append(f"--partition={partition}")
    if account is not None:
        options.append(f"--account={account}")
    options += [
        f"--time={_ATTEMPTS * step_minutes + _SLACK_MINUTES}",
        f"--nodes={len(nodes)}",
        f"--nodelist={fold_hosts(nodes)}",
        *gpus,
        # Whole nodes, whatever the site asks for otherwise: another job's traffic would be measured with ours.
        "--exclusive",
        "--mem=0",
        f"--ntasks-per-node={ranks_per_node}",
        "--no-kill",
        "--no-requeue",
        f"--output={log_option_path(directory)}",
        "--open-mode=append",
    ]
    directives = tuple([quoted_option(option) for option in options] + [ShellText(line) for line in dialect.directives])
    script = render_template(
        "measure.sbatch.j2",
        templates=templates,
        values={
            "directives": directives,
            "about": about,
            "directory": directory,
            "mpi": dialect.mpi,
            "mpi_env": _mpi_environment(site),
            "step_minutes": step_minutes,
            "places": ranks_per_node,
            "step_options": gpus,
        },
    )
    files = (
        *(JobFile(path=path, text=text) for path, text in texts.items()),
        *(JobFile(path=f"templates/{path}", text=text) for path, text in templates.items()),
        JobFile(path="measure.sbatch", text=script, mode=0o700),
        *runtime_files(site=site, service=None, templates=templates, directory=directory, python_folder=python_folder),
    )
    return Job(
        name=directory.rpartition("/")[2],
        directory=directory,
        files=files,
        directives=directives,
        argv=("sbatch", "--parsable", f"{directory}/measure.sbatch"),
    )


def measuring_dialect(site: Site) -> SlurmDialect:
    """The site's Slurm; raises PlacementError where there is none, where MPI or NIXL cannot be started."""
    if site.slurm is None:
        raise PlacementError(
            f"site {site.name} has no Slurm, which starts the ranks of a measurement",
            remedy="describe its Slurm under `slurm:`; on one host there is no link between nodes to measure",
        )
    if site.slurm.mpi is None:
        raise PlacementError(
            f"site {site.name} does not say how its Slurm starts MPI programs",
            remedy="set `slurm.mpi` in the site file to what `srun --mpi=list` shows for your MPI: `pmix`, `pmi2`",
        )
    if _ENGINE in site.runtimes and site.runtimes[_ENGINE].kind == RuntimeKind.PYXIS:
        raise PlacementError(
            "NIXL's process is started by a rank inside the node, where no Pyxis container can be entered",
            remedy=f"measure with a copy of the site file whose `runtimes.{_ENGINE}` is a venv on a shared path",
        )
    return site.slurm


def _gpu_options(site: Site, dialect: SlurmDialect, nodes: Sequence[str]) -> tuple[str, ...]:
    """All GPUs of each node, of as many as the smallest node has."""
    hosts = hosts_of(site)
    gpus = [hosts[node].gpu for node in nodes]
    count = min(gpu.count for gpu in gpus)
    kinds = {gpu.gres for gpu in gpus}
    kind = f"{kinds.pop()}:" if len(kinds) == 1 and None not in kinds else ""
    match dialect.gpu_request:
        case "gres":
            return (f"--gres=gpu:{kind}{count}",)
        case "gpus-per-node":
            return (f"--gpus-per-node={kind}{count}",)
        case "none":
            return ()


def _mpi_environment(site: Site) -> tuple[tuple[str, str], ...]:
    """Open MPI's TCP on the control network: its parameter takes interfaces or subnets (ompi_info, btl tcp)."""
    control = site.networks.control
    where = control.interface or control.subnet
    return (("OMPI_MCA_btl_tcp_if_include", where),) if where else ()
