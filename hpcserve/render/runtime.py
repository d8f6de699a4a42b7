"""How a shell enters each runtime of the site: one script a runtime, for people and for the agents alike."""

from collections.abc import Mapping

from hpcserve.nouns import JobFile, Runtime, RuntimeKind, Service, Site
from hpcserve.render.shell import ShellText, home_path, words
from hpcserve.render.templates import render_template

__all__ = ["HPCSERVE", "engine_runtime", "runtime_files"]

HPCSERVE = "hpcserve"
"""The runtime of the agents and the router."""


def engine_runtime(engine: str) -> str:
    """Name of the runtime that an engine starts in: the simulated one lives in hpcserve's own."""
    return HPCSERVE if engine == "sim" else engine


def runtime_files(
    *, site: Site, service: Service, templates: Mapping[str, str], directory: str, python_folder: str
) -> tuple[JobFile, ...]:
    """`runtimes/NAME.sh` for each runtime of the site, in the site's order."""
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


def _wrapper(runtime: Runtime, site: Site, service: Service, directory: str) -> ShellText:
    """What stands before each command: nothing, or `apptainer exec` with the GPUs, the job and the models visible."""
    if runtime.kind != RuntimeKind.APPTAINER or runtime.path is None:
        return ShellText("")
    # The home directory is mounted by Apptainer itself (apptainer.conf: `mount home = yes`).
    folders = [directory, *(path for path in (site.paths.models, service.model) if path.startswith("/"))]
    binds = [word for folder in folders for word in ("--bind", folder)]
    return ShellText(f"{words(['apptainer', 'exec', *_gpu_flag(site), *binds])} {home_path(runtime.path)}")


def _gpu_flag(site: Site) -> tuple[str, ...]:
    """Apptainer's option for the site's GPUs (apptainer exec(1): `--nv` NVIDIA, `--rocm` AMD); none for CPU slots."""
    models = {kind.gpu.model.lower() for kind in site.node_types.values()}
    if models == {"cpu"}:
        return ()
    if any(model.startswith(("amd", "mi", "instinct")) for model in models):
        return ("--rocm",)
    return ("--nv",)
