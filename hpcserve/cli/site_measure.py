"""`hpcserve site measure`: what the links between nodes really carry."""

import shlex
from pathlib import Path

import click
from click.core import ParameterSource

from hpcserve.cli.measurement_waiting import attempts_of, await_measurement, what_was_measured
from hpcserve.cli.options import (
    Figure,
    examples,
    job_roots,
    jobs_dir_option,
    json_option,
    print_record,
    site_option_if_new,
)
from hpcserve.deploy import (
    SubmittedMeasurement,
    check_place,
    find_measurement,
    find_site,
    launch_measurement,
    prepare_measurement,
    read_text,
    write_whole,
)
from hpcserve.discovery import write_record
from hpcserve.errors import UnverifiedError
from hpcserve.fabric import fabric_of
from hpcserve.measure import errand_text, measurement_text
from hpcserve.scheduler import SchedulerState, launcher_for
from hpcserve.site import load_site
from hpcserve.wire import encode_record

__all__ = ["site_measure"]

_OF_A_NEW_JOB = ("site", "nodes", "partition", "account", "seconds", "dry_run")
"""What a measurement that was submitted before has settled."""


@click.command(
    "measure",
    epilog=examples(
        "hpcserve site measure --site onebox --dry-run",
        "hpcserve site measure --site my-cluster --partition gpu --nodes gpu[001-016]",
        "hpcserve site measure --site onebox --output onebox.measured.json",
        "hpcserve site measure --job measure-onebox-1",
    ),
)
@site_option_if_new
@click.option("--nodes", metavar="HOSTLIST", help="Measure between these.  [default: all of the partition]")
@click.option("--partition", help="The Slurm partition.  [default: the site's only one]")
@click.option("--account", help="The account that the job is charged to.")
@click.option(
    "--seconds",
    type=Figure(0.1, 60),
    default=1.5,
    show_default=True,
    help="How long each pair is measured, after it is connected.",
)
@click.option(
    "--job",
    metavar="JOB",
    help="Submit nothing: wait for a measurement that was submitted before (its directory, name or Slurm id), and fetch"
    " what it measured.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the measurement is written.  [default: SITE.measured-DAY.json]",
)
@jobs_dir_option
@click.option("--dry-run", is_flag=True, help="Show the pairs and rounds, and submit nothing.")
@json_option
@click.pass_context
def site_measure(
    context: click.Context,
    *,
    site: str | None,
    nodes: str | None,
    partition: str | None,
    account: str | None,
    seconds: float,
    job: str | None,
    output: Path | None,
    jobs_dir: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Measure what the links between nodes really carry, in a Slurm job of whole nodes.

    NIXL reads KV-like blocks between the memories of two nodes, over the transports that the site names, as vLLM pulls
    KV. No two pairs that run at once share a link; after them, flows that share an uplink run together and show what it
    carries. Nodes and links that are slower than their like are named.

    Ctrl-C ends the job. Where this command itself is ended, or its connection, the job goes on: --job takes it up.
    """
    if job is not None:
        _check_alone(context)
        submitted = find_measurement(job, job_roots(jobs_dir))
        _check_output(output)
        _keep(submitted, _await_other(submitted), output, as_json=as_json)
        return
    if site is None:
        raise click.UsageError("Missing option '--site' (or '--job', for a measurement that was submitted before).")
    path = find_site(site)
    text = read_text(path)
    described = load_site(text, source=str(path))
    prepared = prepare_measurement(
        described, text, nodes=nodes, partition=partition, account=account, seconds=seconds, jobs_dir=jobs_dir
    )
    if dry_run:
        if as_json:
            print_record(prepared.errand)
        else:
            click.echo(errand_text(prepared.errand), nl=False)
        return
    _check_output(output)
    submitted = launch_measurement(prepared)
    _keep(submitted, _await_own(submitted), output, as_json=as_json)


def _check_alone(context: click.Context) -> None:
    """Raises UsageError for an option that a measurement which was submitted before has settled."""
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in _OF_A_NEW_JOB
        and context.get_parameter_source(parameter.name) == ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"--job takes up a measurement as it was submitted: leave out {', '.join(given)}")


def _check_output(output: Path | None) -> None:
    check_place(output or Path("measured.json"), remedy="name a file in another folder with --output")


def _await_own(submitted: SubmittedMeasurement) -> SchedulerState:
    click.echo(
        f"job {submitted.handle.id} in {submitted.directory}; should this command be ended before it:"
        f" hpcserve site measure --job {shlex.quote(str(submitted.directory))}",
        err=True,
    )
    try:
        return await_measurement(submitted)
    except KeyboardInterrupt:
        launcher_for("slurm").cancel(submitted.handle)
        click.echo(f"\njob {submitted.handle.id} is ended; what it measured is in {submitted.directory}", err=True)
        raise


def _await_other(submitted: SubmittedMeasurement) -> SchedulerState:
    try:
        return await_measurement(submitted)
    except KeyboardInterrupt:
        click.echo(f"\njob {submitted.handle.id} goes on in {submitted.directory}", err=True)
        raise


def _keep(submitted: SubmittedMeasurement, state: SchedulerState, output: Path | None, *, as_json: bool) -> None:
    """Write what was measured into the job directory and where it is wanted, and show it; raises UnverifiedError."""
    directory = submitted.directory
    measurement = what_was_measured(submitted, state)
    kept = directory / "measurement.json"
    write_record(kept, measurement)
    target = output or Path(f"{submitted.site.name}.measured-{measurement.day}.json")
    if as_json:
        print_record(measurement)
    else:
        click.echo(measurement_text(measurement, fabric=fabric_of(submitted.site)), nl=False)
    for line in attempts_of(submitted):
        click.echo(line, err=True)
    write_whole(target, encode_record(measurement), remedy=f"the measurement is in {kept}: copy it from there")
    click.echo(f"written to {target}; the job's own files are in {directory}", err=True)
    if measurement.missing:
        raise UnverifiedError(
            f"{len(measurement.missing)} of the measurements are missing; the others are in {target}",
            remedy=f"see {directory}/logs, and measure again",
        )
