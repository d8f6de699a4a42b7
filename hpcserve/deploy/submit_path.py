"""From a service file to a submitted job, top to bottom."""

import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from hpcserve.deploy.job_directory import make_job_directory, next_number
from hpcserve.deploy.latency_given import read_speeds
from hpcserve.deploy.measured import read_measurement
from hpcserve.deploy.model_files import ModelFiles, read_model
from hpcserve.deploy.places import find_site, jobs_folder, read_templates, read_text
from hpcserve.discovery import remove_tree, write_record
from hpcserve.engines import adapter_for
from hpcserve.errors import MissingToolError, SchedulerError
from hpcserve.fabric import Fabric, fabric_of
from hpcserve.model import shape_of
from hpcserve.nouns import Comparison, Job, JobHandle, ModelShape, Plan, RuntimeKind, Service, Site
from hpcserve.placement import Speed, place, weigh
from hpcserve.render import render_job
from hpcserve.scheduler import launcher_for
from hpcserve.site import load_service, load_site
from hpcserve.wire import Complaint, decode_yaml

__all__ = [
    "Planned",
    "Prepared",
    "check_startable",
    "launch",
    "launch_job",
    "own_python_folder",
    "plan_service",
    "prepare",
    "write_job",
]

LauncherName = Literal["slurm", "local"]

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A service placed on a site, before anything is written."""

    site: Site
    service: Service
    model: ModelFiles
    shape: ModelShape
    fabric: Fabric
    plan: Plan
    texts: dict[str, str]
    """`service.yaml` and `site.yaml` as they were read."""
    speeds: tuple[Speed, ...] = ()
    """The latency models that were given."""
    comparison: Comparison | None = None
    """What was considered, where latency models were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A job as it would be written and submitted."""

    planned: Planned
    launcher: LauncherName
    templates: dict[str, str]
    keys: dict[str, str]
    python_folder: str
    job: Job

    @property
    def directory(self) -> Path:
        """The job directory."""
        return Path(self.job.directory)


def plan_service(
    service_file: Path,
    *,
    site: str,
    measured: Path | None = None,
    latency: Sequence[str] = (),
    gpus: int | None = None,
    alternatives: bool = False,
) -> Planned:
    """Read everything and place the service; raises InputError, NotFoundError or PlacementError; changes nothing.

    `measured`: what `site measure` wrote of that site; its figures go before the site's, here and inside the job.
    `latency`: files or names of latency models; with them the verdict is simulated, `gpus` lets it choose the pools and
    `alternatives` simulates other shapes of as many GPUs.

    The model's `config.json` is enough to plan with; what that leaves unchecked is in the model's `trouble`.
    """
    site_file = find_site(site)
    site_text, service_text = read_text(site_file), read_text(service_file)
    described = load_site(site_text, source=str(site_file))
    service = _load_service(service_text, source=str(service_file), site=described)
    model = read_model(service, described)
    shape = shape_of(
        model.config_text,
        name=service.served_name,
        source=str(model.directory / "config.json"),
        weights_bytes=model.weights_bytes,
        quantisation_text=model.quantisation_text,
    )
    texts = {"service.yaml": service_text, "site.yaml": site_text}
    fabric = fabric_of(described)
    if measured is not None:
        measurement, texts["measured.json"] = read_measurement(measured, described)
        fabric = fabric_of(described, measured=measurement)
    speeds = read_speeds(latency)
    comparison: Comparison | None = None
    if speeds:
        weighed = weigh(
            fabric=fabric,
            site=described,
            shape=shape,
            service=service,
            speeds=speeds,
            gpus=gpus,
            alternatives=alternatives,
        )
        service, comparison = weighed.service, weighed.comparison
    return Planned(
        site=described,
        service=service,
        model=model,
        shape=shape,
        fabric=fabric,
        plan=comparison.plan if comparison else place(fabric=fabric, site=described, shape=shape, service=service),
        texts=texts,
        speeds=speeds,
        comparison=comparison,
    )


def prepare(planned: Planned, *, launcher: LauncherName | None = None, jobs_dir: Path | None = None) -> Prepared:
    """The job as it would be submitted, under the first number that is free now; changes nothing.

    `launcher` None: Slurm where the site has one. Raises NotFoundError for a model that is not whole, MissingToolError,
    PlacementError, or InputError (a template).
    """
    planned.model.require_whole()
    check_startable(planned.service, planned.plan)
    chosen = launcher or ("local" if planned.site.slurm is None else "slurm")
    if chosen == "slurm" and planned.plan.ask.partition is None:
        raise SchedulerError("the service names no partition", remedy="add `partition:`, or use --launcher local")
    root = jobs_folder(planned.site, jobs_dir)
    templates = read_templates()
    keys = {name: secrets.token_hex(_KEY_BYTES) for name in ("api.key", "engine.key")}
    folder = own_python_folder(planned.site)
    number = next_number(root, planned.service.name)
    job = _render(
        planned,
        root / f"{planned.service.name}-{number}",
        launcher=chosen,
        templates=templates,
        keys=keys,
        python_folder=folder,
    )
    return Prepared(planned=planned, launcher=chosen, templates=templates, keys=keys, python_folder=folder, job=job)


def check_startable(service: Service, plan: Plan) -> None:
    """Raise PlacementError for a plan whose workers the service's engine cannot be started for."""
    obstacle = adapter_for(service.engine).start_obstacle(plan)
    if obstacle is not None:
        raise obstacle


def write_job(prepared: Prepared) -> Prepared:
    """Make the job directory, whole or not at all; the job that comes back has the number that it got.

    Another submit may have taken the number meanwhile: then the job is rendered anew for the next one.
    """
    root, service = prepared.directory.parent, prepared.planned.service.name
    while not make_job_directory(prepared.job):
        directory = root / f"{service}-{next_number(root, service)}"
        job = _render(
            prepared.planned,
            directory,
            launcher=prepared.launcher,
            templates=prepared.templates,
            keys=prepared.keys,
            python_folder=prepared.python_folder,
        )
        prepared = replace(prepared, job=job)
    return prepared


def launch(prepared: Prepared) -> JobHandle:
    """Submit a job whose directory is written: see `launch_job`."""
    return launch_job(prepared.job, launcher=prepared.launcher)


def launch_job(job: Job, *, launcher: LauncherName) -> JobHandle:
    """Submit a job whose directory is written and note its id there; a job that is refused leaves no directory.

    Ctrl-C counts once that is done: a job that runs and that nothing knows of would be worse. Where its id cannot be
    noted, the job is ended again. Raises SchedulerError, MissingToolError, or OSError where nothing could be started.
    """
    chosen, directory = launcher_for(launcher), Path(job.directory)
    with _held_interrupt():
        try:
            handle = chosen.submit(job)
        except (SchedulerError, MissingToolError, OSError):
            remove_tree(directory)
            raise
        try:
            write_record(directory / "job.json", handle)
        except OSError as error:
            chosen.cancel(handle)
            raise SchedulerError(
                f"job {handle.id} was submitted and ended again, as {directory} cannot be written: {error.strerror}",
                remedy="make room there, or choose another --jobs-dir",
            ) from None
    return handle


@contextmanager
def _held_interrupt() -> Iterator[None]:
    """Ctrl-C inside takes effect at the end; only the main thread is ever interrupted, so only there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def _render(
    planned: Planned,
    directory: Path,
    *,
    launcher: LauncherName,
    templates: dict[str, str],
    keys: dict[str, str],
    python_folder: str,
) -> Job:
    return render_job(
        plan=planned.plan,
        site=planned.site,
        service=planned.service,
        texts=planned.texts,
        templates=templates,
        directory=str(directory),
        python_folder=python_folder,
        launcher=launcher,
        keys=keys,
    )


def _load_service(text: str, *, source: str, site: Site) -> Service:
    """The service, checked against the site, its engine, and what a process can be given."""
    service = load_service(text, source=source, site=site)
    return decode_yaml(Service, text, source=source, check=lambda _: _engine_complaints(service))


def _engine_complaints(service: Service) -> Iterator[Complaint]:
    yield from adapter_for(service.engine).complaints(service)
    nul = partial(
        Complaint,
        found="a value with NUL",
        wanted="text that an argument or variable can hold was wanted",
        remedy="remove the NUL",
    )
    parts = [
        ((), service.args, service.env),
        *((("pools", at), pool.args, pool.env) for at, pool in enumerate(service.pools)),
    ]
    for path, args, env in parts:
        yield from (nul(path=(*path, "args", at)) for at, word in enumerate(args) if "\0" in word)
        yield from (nul(path=(*path, "env", name)) for name, value in env.items() if "\0" in value)


def own_python_folder(site: Site) -> str:
    """Folder of the `python` that the jobs run hpcserve with, where the site names no environment: this very one."""
    folder = Path(sys.executable).parent
    runtime = site.runtimes.get("hpcserve")
    if runtime is not None and runtime.kind == RuntimeKind.NONE and not (folder / "python").exists():
        raise MissingToolError(
            f"there is no `python` beside {sys.executable}, and site {site.name} names no runtime for hpcserve",
            remedy="install hpcserve into a virtual environment, or set `runtimes.hpcserve` in the site file",
        )
    return str(folder)
