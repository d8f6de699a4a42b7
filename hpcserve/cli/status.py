"""`hpcserve status`: where a job is, and each of its workers."""

import json
from pathlib import Path

import click

from hpcserve.cli.options import (
    complete_job,
    examples,
    job_roots,
    jobs_dir_of_old_jobs_option,
    json_option,
    print_record,
)
from hpcserve.draw import text_table
from hpcserve.errors import HpcserveError
from hpcserve.nouns import JobState
from hpcserve.scheduler import FoundJob, find_job, job_state, launcher_for, list_jobs, router_answers

__all__ = ["shown_state", "status"]


@click.command(
    epilog=examples("hpcserve status", "hpcserve status chat", "hpcserve status chat-2 --json", "hpcserve status 4242")
)
@click.argument("job", metavar="[JOB]", required=False, shell_complete=complete_job)
@jobs_dir_of_old_jobs_option
@json_option
def status(job: str | None, jobs_dir: Path | None, as_json: bool) -> None:
    """Show the state of JOB (its id, name or directory), or of all jobs.

    A job is `ready` only when its router has proved every worker and answers now.
    """
    roots = job_roots(jobs_dir)
    if job is None:
        _all(list_jobs(roots), roots, as_json=as_json)
        return
    state = _look(find_job(job, roots))
    if as_json:
        print_record(state)
    else:
        click.echo(shown_state(state), nl=False)


def shown_state(state: JobState) -> str:
    """One job in full: phase, reason, address, workers, the end of each failed worker's log."""
    handle = state.handle
    head = f"{handle.name}: {state.phase.value} ({handle.launcher} job {handle.id}, {state.scheduler_state})"
    lines = [head + (" [simulated engine]" if state.simulated else "")]
    if state.reason:
        lines.append(f"  {state.reason}")
    if state.url is not None:
        lines.append(f"  {state.url}")
    lines += [f"  unfit: {one.node}: {'; '.join(one.reasons)}" for one in state.refused]
    lines += [f"  KV events: {one}" for one in state.kv_doubts]
    lines.append(f"  {handle.directory}")
    text = "\n".join(lines) + "\n"
    if state.workers:
        rows = [(w.id, w.node, w.phase, str(w.restarts), w.detail) for w in state.workers]
        text += "\n" + text_table(
            ("worker", "node", "state", "restarts", "detail"), rows, right=frozenset({"restarts"})
        )
    for worker in state.workers:
        if worker.log_tail:
            text += f"\nend of logs/{worker.id}.log:\n" + "".join(f"  {line}\n" for line in worker.log_tail)
    return text


def _look(job: FoundJob) -> JobState:
    handle = job.submitted()
    return job_state(job.directory, handle, launcher=launcher_for(handle.launcher), answers=router_answers)


def _all(jobs: tuple[FoundJob, ...], roots: tuple[Path, ...], *, as_json: bool) -> None:
    """Every job in one line; one whose records cannot be read is shown with the reason and hides no other."""
    looked: list[tuple[FoundJob, JobState | None, str]] = []
    for job in jobs:
        try:
            looked.append((job, _look(job), ""))
        except HpcserveError as error:
            looked.append((job, None, str(error)))
    if as_json:
        records = [
            {
                "name": job.directory.name,
                "directory": str(job.directory),
                "state": None if state is None else json.loads(state.model_dump_json(by_alias=True)),
                "trouble": trouble,
            }
            for job, state, trouble in looked
        ]
        click.echo(json.dumps(records, indent=1))
        return
    if not looked:
        click.echo(f"no jobs in {', '.join(map(str, roots))}")
        return
    rows = [
        (job.directory.name, state.handle.id, state.phase.value, state.url or "", state.reason)
        if state is not None
        else (
            job.directory.name,
            "-",
            "not submitted" if job.handle is None and not job.trouble else "unknown",
            "",
            trouble,
        )
        for job, state, trouble in looked
    ]
    click.echo(text_table(("job", "id", "state", "url", "reason"), rows), nl=False)
