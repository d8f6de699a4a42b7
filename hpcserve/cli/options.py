"""Options that several verbs share, and how their answers are printed."""

import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from hpcserve.deploy import find_site, jobs_folder, list_sites, read_text
from hpcserve.discovery import typed_path
from hpcserve.errors import HpcserveError
from hpcserve.nouns import Job, Noun
from hpcserve.scheduler import list_jobs
from hpcserve.site import load_site
from hpcserve.wire import encode_record

__all__ = [
    "Figure",
    "complete_job",
    "complete_site",
    "examples",
    "job_argument",
    "job_roots",
    "jobs_dir_of_old_jobs_option",
    "jobs_dir_option",
    "json_option",
    "latency_option",
    "measured_option",
    "print_job",
    "print_record",
    "site_option",
    "site_option_if_new",
]

Command = TypeVar("Command", bound=Callable[..., Any])

_SITE_VARIABLE = "HPCSERVE_SITE"
_DEFAULT_ROOT = "~/.local/share/hpcserve/jobs"
"""Where the shipped sites keep their jobs (XDG Base Directory Specification: user data)."""


class Figure(click.FloatRange):
    """A number within limits; `nan`, which passes every limit, and infinity are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number; fails as every mistake in an option does."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no figure", param, ctx)
        return number


def examples(*lines: str) -> str:
    """An epilog that shows commands as they are typed."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def site_option(command: Command) -> Command:
    """`--site`."""
    return _site_option(command, required=True)


def site_option_if_new(command: Command) -> Command:
    """`--site` of a verb that may take up a job instead, whose directory has its site."""
    return _site_option(command, required=False)


def _site_option(command: Command, *, required: bool) -> Command:
    return click.option(
        "--site",
        required=required,
        envvar=_SITE_VARIABLE,
        show_envvar=True,
        metavar="NAME|FILE",
        help="The cluster: a name (`hpcserve site list`) or a site file.",
        shell_complete=complete_site,
    )(command)


def measured_option(command: Command) -> Command:
    """`--measured`."""
    return click.option(
        "--measured",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="What `hpcserve site measure` wrote of the site; its figures go before the site's own.",
    )(command)


def latency_option(command: Command) -> Command:
    """`--latency`."""
    return click.option(
        "--latency",
        multiple=True,
        metavar="FILE|NAME",
        help="How long a worker computes (`hpcserve latency`): the verdict is simulated with it. One for each "
        "tensor_parallel of the pools.",
    )(command)


def jobs_dir_option(command: Command) -> Command:
    """`--jobs-dir` of a verb that makes a job."""
    return _jobs_dir_option(command, default="`paths.jobs` of the site")


def jobs_dir_of_old_jobs_option(command: Command) -> Command:
    """`--jobs-dir` of a verb that looks for a job."""
    return _jobs_dir_option(command, default=f"`paths.jobs` of each site that has a name and of {_SITE_VARIABLE}")


def _jobs_dir_option(command: Command, *, default: str) -> Command:
    return click.option(
        "--jobs-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="HPCSERVE_JOBS_DIR",
        show_envvar=True,
        help=f"Folder of the job directories.  [default: {default}]",
    )(command)


def job_argument(command: Command) -> Command:
    """JOB: an id, a name or a directory."""
    return click.argument("job", metavar="JOB", shell_complete=complete_job)(command)


def job_roots(jobs_dir: Path | None) -> tuple[Path, ...]:
    """Folders in which jobs are looked for: the one asked for, else those of HPCSERVE_SITE and of every named site.

    A site file that cannot be read is named on stderr: its jobs are not found.
    """
    if jobs_dir is not None:
        return (typed_path(jobs_dir).absolute(),)
    roots = [typed_path(_DEFAULT_ROOT)]
    for site in dict.fromkeys([os.environ.get(_SITE_VARIABLE), *map(str, list_sites().values())]):
        try:
            if site:
                path = find_site(site)
                roots.append(jobs_folder(load_site(read_text(path), source=str(path)), None))
        except HpcserveError as error:
            click.echo(f"warning: jobs of this site are not found: {error}", err=True)
    return tuple(dict.fromkeys(roots))


def print_job(job: Job) -> None:
    """A job as JSON on stdout, without its keys."""
    keyless = tuple(file for file in job.files if not file.path.startswith("keys/"))
    print_record(job.model_copy(update={"files": keyless}))


def print_record(noun: Noun) -> None:
    """A noun as JSON on stdout: in UTF-8, whatever the terminal's encoding is (RFC 8259, section 8.1)."""
    click.echo(encode_record(noun), nl=False)


def complete_site(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of sites, and files where no site is named so."""
    names = _starting(list_sites(), incomplete)
    return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]


def complete_job(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of jobs."""
    jobs = list_jobs(job_roots(context.params.get("jobs_dir")))
    return _starting((job.directory.name for job in jobs), incomplete)


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
