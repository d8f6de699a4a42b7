"""`hpcserve cancel`: end a job."""

import json
from pathlib import Path

import click

from hpcserve.cli.options import examples, job_argument, job_roots, jobs_dir_of_old_jobs_option, json_option
from hpcserve.cli.waiting import await_end, shown_waiting
from hpcserve.errors import UnverifiedError
from hpcserve.scheduler import find_job, launcher_for

__all__ = ["cancel"]

_LONGEST_S = 180.0
"""slurm.conf(5): KillWait is 30 s by default, and a node is cleaned up after it."""


@click.command(epilog=examples("hpcserve cancel chat", "hpcserve cancel 4242"))
@job_argument
@jobs_dir_of_old_jobs_option
@json_option
def cancel(job: str, jobs_dir: Path | None, as_json: bool) -> None:
    """End JOB and return when it has ended; its directory with the logs stays."""
    handle = find_job(job, job_roots(jobs_dir)).submitted()
    launcher = launcher_for(handle.launcher)
    before = launcher.state(handle)
    with shown_waiting() as show:
        show(f"{handle.name}: {before.word}, asked to end")
        launcher.cancel(handle)
        state = await_end(handle, timeout_s=_LONGEST_S, show=show)
    if state.phase == "unknown" and before.phase not in {"unknown", "ended", "failed"}:
        raise UnverifiedError(f"{handle.name} was asked to end; whether it did is not known: {state.reason}")
    if as_json:
        click.echo(json.dumps({"name": handle.name, "id": handle.id, "state": state.word}))
    elif before.phase in {"ended", "failed"}:
        click.echo(f"{handle.name} had ended before: {before.word}")
    else:
        click.echo(f"{handle.name}: {state.word}")
