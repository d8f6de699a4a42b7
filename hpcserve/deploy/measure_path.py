"""From a site to a submitted measurement, top to bottom, and back from the directory of one that was submitted."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from hpcserve.deploy.job_directory import make_job_directory, next_number
from hpcserve.deploy.places import jobs_folder, read_templates, read_text
from hpcserve.deploy.submit_path import launch_job, own_python_folder
from hpcserve.discovery import read_dir_record, typed_path
from hpcserve.errors import NotFoundError, PlacementError
from hpcserve.measure import ERRAND_FILE, Errand, child_program, errand_text, plan_errand, time_limit_s
from hpcserve.nouns import Job, JobHandle, Site
from hpcserve.render import MEASURE_TEMPLATE_NAMES, measuring_dialect, render_measurement
from hpcserve.site import expand_hosts, fold_hosts, load_site
from hpcserve.wire import UnreadableRecordError, encode_record

__all__ = [
    "PreparedMeasurement",
    "SubmittedMeasurement",
    "find_measurement",
    "launch_measurement",
    "prepare_measurement",
]

_SITE_FILE = "site.yaml"
_HANDLE_FILE = "job.json"
_NAMES = "measure-*"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedMeasurement:
    """A measuring job as it would be written and submitted."""

    site: Site
    errand: Errand
    partition: str
    account: str | None
    root: Path
    texts: dict[str, str]
    job: Job


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedMeasurement:
    """A measuring job that Slurm has taken: all that is needed to wait for it and to read what it wrote."""

    site: Site
    errand: Errand
    handle: JobHandle

    @property
    def directory(self) -> Path:
        """The job directory."""
        return Path(self.handle.directory)


def prepare_measurement(
    site: Site,
    site_text: str,
    *,
    nodes: str | None,
    partition: str | None,
    account: str | None,
    seconds: float,
    jobs_dir: Path | None,
) -> PreparedMeasurement:
    """The measuring job of these nodes (a host list; None: all of the partition); changes nothing.

    Raises PlacementError where the site's Slurm cannot be asked, or where it is not clear which partition is meant;
    NotFoundError for a node; HostListError; InputError for a template.
    """
    measuring_dialect(site)
    chosen = _partition(site, partition)
    members = expand_hosts(site.partitions[chosen].hosts)
    names = tuple(dict.fromkeys(expand_hosts(nodes))) if nodes is not None else members
    outside = [name for name in names if name not in members]
    if outside:
        raise PlacementError(
            f"{fold_hosts(outside)} is not in partition {chosen}", remedy=f"its nodes are {fold_hosts(members)}"
        )
    if site.partitions[chosen].account_required and account is None:
        raise PlacementError(f"partition {chosen} wants an account", remedy="name one with --account")
    errand = plan_errand(site, nodes=names, seconds=seconds)
    texts = {
        _SITE_FILE: site_text,
        ERRAND_FILE: encode_record(errand).decode(),
        "measure_child.py": child_program(),
    }
    root = jobs_folder(site, jobs_dir)
    name = f"measure-{site.name}"
    directory = root / f"{name}-{next_number(root, name)}"
    job = _render(site, errand, partition=chosen, account=account, texts=texts, directory=directory)
    return PreparedMeasurement(
        site=site, errand=errand, partition=chosen, account=account, root=root, texts=texts, job=job
    )


def launch_measurement(prepared: PreparedMeasurement) -> SubmittedMeasurement:
    """Write the job directory and submit it to Slurm; raises SchedulerError, MissingToolError, HpcserveError."""
    name = f"measure-{prepared.site.name}"
    while not make_job_directory(prepared.job):
        directory = prepared.root / f"{name}-{next_number(prepared.root, name)}"
        job = _render(
            prepared.site,
            prepared.errand,
            partition=prepared.partition,
            account=prepared.account,
            texts=prepared.texts,
            directory=directory,
        )
        prepared = replace(prepared, job=job)
    handle = launch_job(prepared.job, launcher="slurm")
    return SubmittedMeasurement(site=prepared.site, errand=prepared.errand, handle=handle)


def find_measurement(wanted: str, roots: Iterable[Path]) -> SubmittedMeasurement:
    """The measurement of that directory, name (`measure-SITE-N`) or Slurm id, as its directory has kept it.

    Of several the one that was submitted last. Raises NotFoundError, InputError for a site file that is no longer read.
    """
    if "/" in wanted or wanted in {".", ".."}:
        return _submitted(typed_path(wanted).absolute())
    roots = tuple(roots)
    found = []
    for directory in (each for root in roots if root.is_dir() for each in root.glob(_NAMES)):
        try:
            handle = read_dir_record(directory, _HANDLE_FILE, JobHandle)
        except (OSError, UnreadableRecordError):
            continue
        if handle is not None and wanted in {directory.name, handle.id.partition(";")[0]}:
            found.append((handle.submitted_utc, directory))
    if not found:
        raise NotFoundError(
            f"no measurement `{wanted}` in {', '.join(map(str, roots))}",
            remedy="name its directory, `measure-SITE-N`, or its Slurm id; of a site that is a file without a name, set"
            " HPCSERVE_SITE to it; --jobs-dir looks elsewhere",
        )
    return _submitted(max(found)[1])


def _submitted(directory: Path) -> SubmittedMeasurement:
    """What a directory has kept; raises NotFoundError where it is no measurement's, or one that was not submitted."""
    remedy = f"name the directory of a measurement that was submitted: it has {ERRAND_FILE} and {_HANDLE_FILE}"
    try:
        errand = read_dir_record(directory, ERRAND_FILE, Errand)
        handle = read_dir_record(directory, _HANDLE_FILE, JobHandle)
    except UnreadableRecordError as error:
        raise NotFoundError(f"{directory} cannot be read: {error}", remedy=remedy) from None
    except OSError as error:
        raise NotFoundError(f"{directory} cannot be read: {error.strerror}", remedy=remedy) from None
    if errand is None or handle is None:
        raise NotFoundError(f"{directory} is no measurement that was submitted", remedy=remedy)
    path = directory / _SITE_FILE
    # it may have been moved since
    handle = handle.model_copy(update={"directory": str(directory)})
    return SubmittedMeasurement(site=load_site(read_text(path), source=str(path)), errand=errand, handle=handle)


def _render(
    site: Site, errand: Errand, *, partition: str, account: str | None, texts: dict[str, str], directory: Path
) -> Job:
    return render_measurement(
        about=f"{directory.name}: what the links of site {site.name} really carry\n\n{errand_text(errand)}",
        site=site,
        nodes=errand.nodes,
        ranks_per_node=errand.places,
        limit_s=time_limit_s(errand),
        partition=partition,
        account=account,
        texts=texts,
        templates=read_templates(MEASURE_TEMPLATE_NAMES),
        directory=str(directory),
        python_folder=own_python_folder(site),
    )


def _partition(site: Site, asked: str | None) -> str:
    """The partition that is meant; raises PlacementError where that is not clear."""
    known = ", ".join(site.partitions) or "none"
    if asked is not None and asked not in site.partitions:
        raise PlacementError(f"site {site.name} has no partition {asked}", remedy=f"it has {known}")
    if asked is None and len(site.partitions) != 1:
        raise PlacementError(
            f"site {site.name} has {len(site.partitions)} partitions ({known})",
            remedy="name one with --partition" if site.partitions else "describe one in the site file",
        )
    return asked if asked is not None else next(iter(site.partitions))
