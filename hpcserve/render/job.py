"""A plan and its templates -> the files of a job directory and the command that submits it."""

from collections.abc import Callable, Mapping
from typing import Literal

from hpcserve.draw import paths_table, plan_map
from hpcserve.errors import InputError, Mistake, PlacementError
from hpcserve.fabric import fabric_of
from hpcserve.nouns import Job, JobFile, Plan, Service, Site
from hpcserve.render.directives import cpus_per_node, directive_lines, gpu_options, with_options
from hpcserve.render.runtime import HPCSERVE, engine_runtime, runtime_files
from hpcserve.render.templates import render_template
from hpcserve.wire import encode_record

__all__ = ["TEMPLATE_NAMES", "render_job"]

TEMPLATE_NAMES = ("job.sbatch.j2", "local.sh.j2", "agent.sh.j2", "runtime.sh.j2", "worker.sh.j2")

_STEP_WAIT_S = 60
"""How long the agents' step may wait for nodes that were granted already; srun then fails and says so."""


def render_job(
    *,
    plan: Plan,
    site: Site,
    service: Service,
    texts: Mapping[str, str],
    templates: Mapping[str, str],
    directory: str,
    python_folder: str,
    launcher: Literal["slurm", "local"],
    keys: Mapping[str, str],
) -> Job:
    """Everything that stands in the job directory before it is submitted, and how it is submitted.

    `texts` are copies to keep (`service.yaml`, `site.yaml`), `keys` the contents of `keys/`, `directory` is absolute,
    `python_folder` holds the `python` that runs hpcserve where the site names no runtime for it. Raises PlacementError
    where Slurm cannot be asked for this, InputError with the template's line where a script cannot be written.
    """
    _refuse_missing(templates, service, site)
    about = _about(plan, site, directory, fabric_of(site).leaves_named)
    values: dict[str, object] = {"directory": directory, "about": about}
    directives: tuple[str, ...] = ()
    if launcher == "slurm":
        plan = with_options(plan, site=site, service=service)
        directives = directive_lines(plan=plan, site=site, service=service, directory=directory)
        steps = [
            [f"--cpus-per-task={cpus_per_node(ask=ask, site=site)}", *gpu_options(ask=ask, site=site)]
            for ask in plan.asks
        ]
        components = list(enumerate(steps)) if plan.further_asks else []
        values |= {"directives": directives, "step_options": steps[0], "components": components}
        values |= {"step_wait_s": _STEP_WAIT_S}
        script, template = "job.sbatch", "job.sbatch.j2"
    else:
        values |= {"nodes": plan.nodes, "head": plan.nodes[0], "node_count": len(plan.nodes)}
        script, template = "local.sh", "local.sh.j2"
    name = directory.rpartition("/")[2]
    agent_values = {"directory": directory, "about": f"The agent of one node of {name}."}
    files = (
        *(JobFile(path=path, text=text) for path, text in texts.items()),
        *(JobFile(path=f"templates/{path}", text=text) for path, text in templates.items()),
        JobFile(path="plan.asked.json", text=encode_record(plan).decode()),
        JobFile(path=script, text=render_template(template, templates=templates, values=values), mode=0o700),
        JobFile(
            path="agent.sh",
            text=render_template("agent.sh.j2", templates=templates, values=agent_values),
            mode=0o700,
        ),
        *runtime_files(
            site=site, service=service, templates=templates, directory=directory, python_folder=python_folder
        ),
        *(JobFile(path=f"keys/{path}", text=text) for path, text in keys.items()),
    )
    argv = (
        ("sbatch", "--parsable", f"{directory}/{script}") if launcher == "slurm" else ("bash", f"{directory}/{script}")
    )
    return Job(name=name, directory=directory, files=files, directives=directives, argv=argv)


def _about(plan: Plan, site: Site, directory: str, leaf_of: Callable[[str], str]) -> str:
    """What a person wants to know who opens the script: what it serves, which worker goes where, and why."""
    promise = "Where Slurm leaves the choice, other nodes of the same kind may be granted: plan.json then says which."
    verdict = "\n".join(f"  {reason}" for reason in plan.verdict.reasons)
    mode = f"asked for: {plan.asked_mode}; served: {plan.mode}"
    return (
        f"{directory.rpartition('/')[2]}: service {plan.service} on site {site.name}\n\n"
        f"{plan_map(plan, leaf_of=leaf_of)}\n{paths_table(plan)}\nVerdict ({mode}):\n{verdict}\n\n{promise}"
    )


def _refuse_missing(templates: Mapping[str, str], service: Service, site: Site) -> None:
    """All templates and the runtimes that the job enters must be there before anything is written."""
    mistakes = [
        Mistake(
            file=name, line=1, column=1, found="no such template", wanted="it is required", remedy="restore the file"
        )
        for name in TEMPLATE_NAMES
        if name not in templates
    ]
    if mistakes:
        raise InputError(mistakes)
    for name in (HPCSERVE, engine_runtime(service.engine)):
        if name not in site.runtimes:
            raise PlacementError(
                f"site {site.name} does not say how the runtime `{name}` is entered",
                remedy=f"add `{name}:` under `runtimes` in the site file",
            )
