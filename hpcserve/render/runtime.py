"""How a shell enters each runtime of the site: one script a runtime, for people and for the agents alike."""

from collections.abc import Mapping

from hpcserve.nouns import JobFile, Runtime, RuntimeKind, Service, Site
from hpcserve.render.containers import container_words
from hpcserve.render.shell import ShellText
from hpcserve.render.templates import render_template

__all__ = ["HPCSERVE", "engine_runtime", "runtime_files"]

HPCSERVE = "hpcserve"
"""The runtime of the agents and the router."""


def engine_runtime(engine: str) -> str:
    """Name of the runtime that an engine starts in: the simulated one lives in hpcserve's own."""
    return HPCSERVE if engine == "sim" else engine


def runtime_files(
    *, site: Site, service: Service | None, templates: Mapping[str, str], directory: str, python_folder: str
) -> tuple[JobFile, ...]:
    """`runtimes/NAME.sh` for each runtime of the site, in the site's order; a job without a service needs no model."""
    return tuple(
        JobFile(
            path=f"runtimes/{name}.sh",
            text=_script(
                name,
                runtime,
                site=site,
                templates=templates,
                python_folder=python_folder,
                wrapper=_wrapper(runtime, site, service, directory),
            ),
            mode=0o700,
        )
        for name, runtime in site.runtimes.items()
    )


def _script(
    name: str,
    runtime: Runtime,
    *,
    site: Site,
    templates: Mapping[str, str],
    python_folder: str,
    wrapper: ShellText,
) -> str:
    is_venv = runtime.path is not None and runtime.kind in {RuntimeKind.VENV, RuntimeKind.MODULES}
    # Where the site names no environment for hpcserve, the jobs run with the very interpreter that submits them.
    is_ours = name == HPCSERVE and runtime.kind == RuntimeKind.NONE
    return render_template(
        "runtime.sh.j2",
        templates=templates,
        values={
            "name": name,
            "site": site.name,
            "modules": runtime.modules,
            "venvs": (runtime.path,) if is_venv else (),
            "path": (python_folder,) if is_ours else (),
            "env": tuple(runtime.env.items()),
            "wrapper": wrapper,
        },
    )


def _wrapper(runtime: Runtime, site: Site, service: Service | None, directory: str) -> ShellText:
    """What stands before each command: nothing, or what enters a container that sees the job and the models."""
    models = (site.paths.models, service.model) if service is not None else ()
    folders = [directory, *(path for path in models if path.startswith("/"))]
    return container_words(runtime, site=site, folders=folders)
