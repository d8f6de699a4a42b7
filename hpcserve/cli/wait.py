"""`hpcserve wait`: return when a service is ready."""

from pathlib import Path

import click

from hpcserve.cli.options import (
    Figure,
    examples,
    job_argument,
    job_roots,
    jobs_dir_of_old_jobs_option,
    json_option,
    print_record,
)
from hpcserve.cli.status import shown_state
from hpcserve.cli.waiting import await_ready, shown_waiting, told_where_it_runs
from hpcserve.scheduler import find_job

__all__ = ["wait"]


@click.command(epilog=examples("hpcserve wait chat", "hpcserve wait chat --timeout 600"))
@job_argument
@click.option("--timeout", "timeout_s", type=Figure(min=0), help="Longest wait, in seconds.  [default: none]")
@jobs_dir_of_old_jobs_option
@json_option
def wait(job: str, timeout_s: float | None, jobs_dir: Path | None, as_json: bool) -> None:
    """Return when JOB is ready: its router has proved every worker and answers.

    Exit code 7 when it fails, with the end of the failed worker's log; 8 when the time is up.
    """
    found = find_job(job, job_roots(jobs_dir))
    handle = found.submitted()
    with told_where_it_runs(handle), shown_waiting() as show:
        state = await_ready(found.directory, handle, timeout_s=timeout_s, show=show)
    if as_json:
        print_record(state)
    else:
        click.echo(shown_state(state), nl=False)
