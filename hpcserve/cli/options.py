"""Options that several verbs share, and how their answers are printed."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from hpcserve.deploy import jobs_folder, list_sites, read_text
from hpcserve.errors import HpcserveError
from hpcserve.nouns import Job, Noun
from hpcserve.scheduler import list_jobs
from hpcserve.site import load_site
from hpcserve.wire import encode_record

__all__ = [
    "examples",
    "job_argument",
    "job_roots",
    "jobs_dir_option",
    "json_option",
    "print_job",
    "print_record",
    "site_option",
]

Command = TypeVar("Command", bound=Callable[..., Any])

_DEFAULT_ROOT = "~/.local/share/hpcserve/jobs"
"""Where the shipped sites keep their jobs (XDG Base Directory Specification: user data)."""


def examples(*lines: str) -> str:
    """An epilog that shows commands as they are typed."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def json_option(command: Command) -> Command:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def site_option(command: Command) -> Command:
    """`--site`."""
    return click.option(
        "--site",
        required=True,
        envvar="HPCSERVE_SITE",
        show_envvar=True,
        metavar="NAME|FILE",
        help="The cluster: a name (`hpcserve site list`) or a site file.",
        shell_complete=_complete_site,
    )(command)


def jobs_dir_option(command: Command) -> Command:
    """`--jobs-dir`."""
    return click.option(
        "--jobs-dir",
        type=click.Path(path_type=Path, file_okay=False),
        envvar="HPCSERVE_JOBS_DIR",
        show_envvar=True,
        help="Folder of the job directories.  [default: `paths.jobs` of the site]",
    )(command)


def job_argument(command: Command) -> Command:
    """JOB: an id, a name or a directory."""
    return click.argument("job", metavar="JOB", shell_complete=_complete_job)(command)


def job_roots(jobs_dir: Path | None) -> tuple[Path, ...]:
    """Folders in which jobs are looked for: the one asked for, else those of every site that can be named.

    A site file that cannot be read is named on stderr: its jobs are not found.
    """
    if jobs_dir is not None:
        return (jobs_dir.expanduser().absolute(),)
    roots = [Path(_DEFAULT_ROOT).expanduser()]
    for path in list_sites().values():
        try:
            roots.append(jobs_folder(load_site(read_text(path), source=str(path)), None))
        except HpcserveError as error:
            click.echo(f"warning: jobs of this site are not found: {error}", err=True)
    return tuple(dict.fromkeys(roots))


def print_job(job: Job) -> None:
    """A job as JSON on stdout, without its keys."""
    keyless = tuple(file for file in job.files if not file.path.startswith("keys/"))
    print_record(job.model_copy(update={"files": keyless}))


def print_record(noun: Noun) -> None:
    """A noun as JSON on stdout."""
    click.echo(encode_record(noun).decode(), nl=False)


def _complete_site(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return _starting(list_sites(), incomplete)


def _complete_job(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    jobs = list_jobs(job_roots(context.params.get("jobs_dir")))
    return _starting((job.directory.name for job in jobs), incomplete)


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
