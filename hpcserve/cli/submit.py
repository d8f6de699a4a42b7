"""`hpcserve submit`: plan, write the job directory, hand it to Slurm."""

from pathlib import Path
from typing import Literal

import click

from hpcserve.cli.options import (
    Figure,
    examples,
    jobs_dir_option,
    json_option,
    latency_option,
    measured_option,
    print_job,
    print_record,
    site_option,
)
from hpcserve.cli.plan_page import modes_text, shown_plan
from hpcserve.cli.render import launcher_option
from hpcserve.cli.status import shown_state
from hpcserve.cli.waiting import await_ready, shown_waiting, told_where_it_runs
from hpcserve.deploy import Prepared, launch, plan_service, prepare, write_job

__all__ = ["submit"]


@click.command(
    epilog=examples(
        "hpcserve submit chat.yaml --site onebox --wait",
        "hpcserve submit chat.yaml --site onebox --dry-run",
        "hpcserve submit chat.yaml --site local",
    )
)
@click.argument("service", type=click.Path(path_type=Path))
@site_option
@measured_option
@latency_option
@launcher_option
@jobs_dir_option
@click.option("--wait", "waits", is_flag=True, help="Return when the service is ready, or with its failure.")
@click.option("--timeout", "timeout_s", type=Figure(min=0), help="Longest wait, in seconds.")
@click.option("--dry-run", is_flag=True, help="Show the plan and the script; change nothing.")
@json_option
def submit(
    *,
    service: Path,
    site: str,
    measured: Path | None,
    latency: tuple[str, ...],
    launcher: Literal["slurm", "local"] | None,
    jobs_dir: Path | None,
    waits: bool,
    timeout_s: float | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Submit SERVICE to the cluster SITE; with --wait, return when it is served."""
    if timeout_s is not None and not waits:
        raise click.UsageError("--timeout goes with --wait")
    prepared = prepare(
        plan_service(service, site=site, measured=measured, latency=latency), launcher=launcher, jobs_dir=jobs_dir
    )
    if dry_run:
        _show(prepared, as_json=as_json)
        return
    prepared = write_job(prepared)
    handle = launch(prepared)
    if not as_json:
        click.echo(f"{handle.name}: {handle.launcher} job {handle.id}, {handle.directory}")
        click.echo(f"  Verdict: {prepared.planned.plan.verdict.reasons[0]}")
        click.echo(f"  {modes_text(prepared.planned.plan)}")
    if not waits:
        if as_json:
            print_record(handle)
        else:
            click.echo(f"  next: hpcserve wait {handle.name}; hpcserve url {handle.name}")
        return
    with told_where_it_runs(handle), shown_waiting() as show:
        state = await_ready(prepared.directory, handle, timeout_s=timeout_s, show=show)
    if as_json:
        print_record(state)
    else:
        click.echo(shown_state(state), nl=False)


def _show(prepared: Prepared, *, as_json: bool) -> None:
    """What would be submitted; keys are made anew for each job and not shown."""
    if as_json:
        print_job(prepared.job)
        return
    script = "job.sbatch" if prepared.launcher == "slurm" else "local.sh"
    click.echo(shown_plan(prepared.planned))
    click.echo(f"Would run: {' '.join(prepared.job.argv)}\n")
    click.echo(prepared.job.file(script).text, nl=False)
