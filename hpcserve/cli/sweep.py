"""`hpcserve sweep`: measure placements at rates."""

from pathlib import Path
from typing import Literal

import click

from hpcserve.cli.options import examples, json_option, print_record, site_option
from hpcserve.errors import MissingToolError, UnverifiedError

__all__ = ["sweep"]


@click.command(
    epilog=examples(
        "hpcserve sweep sweep.yaml --site onebox --results results",
        "hpcserve sweep sweep.yaml --site local --launcher local --results results",
        "hpcserve report results",
    )
)
@click.argument("sweep_file", metavar="SWEEP", type=click.Path(path_type=Path))
@site_option
@click.option(
    "--launcher",
    type=click.Choice(["slurm", "local", "debug"]),
    default="slurm",
    show_default=True,
    help="slurm: one job on the cluster; local: a process of this host; debug: this very process.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Folder for the runs, on a filesystem that every node sees. What is measured there already is kept.",
)
@click.option("--retry-invalid", is_flag=True, help="Measure invalid runs again.")
@json_option
def sweep(
    *,
    sweep_file: Path,
    site: str,
    launcher: Literal["slurm", "local", "debug"],
    results: Path,
    retry_invalid: bool,
    as_json: bool,
) -> None:
    """Measure every placement of SWEEP at every rate, in one shared allocation.

    Each run is written the moment it ends. Stopped half-way and started again, it measures what is missing.
    """
    try:
        from hpcserve.bench import BusyLimits  # noqa: PLC0415 - httpx is an extra
        from hpcserve.sweep import run_sweep  # noqa: PLC0415 - submitit and pandas are an extra
    except ModuleNotFoundError as error:
        raise MissingToolError(
            f"sweeps need {error.name}, which is not installed", remedy="pip install 'hpcserve[sweep]'"
        ) from None
    outcome = run_sweep(
        sweep_file,
        site=site,
        executor=launcher,
        results=results,
        retry_invalid=retry_invalid,
        limits=BusyLimits(),
        show=lambda line: click.echo(line, err=True),
    )
    if as_json:
        print_record(outcome)
    else:
        click.echo(f"{len(outcome.valid)} runs valid, {len(outcome.invalid)} invalid, in {outcome.results}")
        for name, reasons in outcome.invalid.items():
            click.echo(f"  {name}: {'; '.join(reasons)}")
        if outcome.invalid:
            click.echo("  --retry-invalid measures the invalid ones again")
        click.echo(f"  next: hpcserve report {outcome.results}")
    if not outcome.valid:
        raise UnverifiedError("no run of the sweep is valid")
