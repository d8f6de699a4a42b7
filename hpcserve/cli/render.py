"""`hpcserve render`: the job directory without submitting it."""

from pathlib import Path
from typing import Literal

import click

from hpcserve.cli.options import (
    examples,
    jobs_dir_option,
    json_option,
    latency_option,
    measured_option,
    print_job,
    site_option,
)
from hpcserve.deploy import plan_service, prepare, write_job

__all__ = ["launcher_option", "render"]

launcher_option = click.option(
    "--launcher",
    type=click.Choice(["slurm", "local"]),
    help="Who starts it: Slurm, or processes of this host.  [default: slurm where the site has it]",
)


@click.command(
    epilog=examples("hpcserve render chat.yaml --site onebox", "hpcserve render chat.yaml --site local --json")
)
@click.argument("service", type=click.Path(path_type=Path))
@site_option
@measured_option
@latency_option
@launcher_option
@jobs_dir_option
@json_option
def render(
    *,
    service: Path,
    site: str,
    measured: Path | None,
    latency: tuple[str, ...],
    launcher: Literal["slurm", "local"] | None,
    jobs_dir: Path | None,
    as_json: bool,
) -> None:
    """Write the job directory of SERVICE without submitting it, and print its path.

    The script in it can be read, changed and submitted by hand: `sbatch job.sbatch`, or `bash local.sh`.
    """
    planned = plan_service(service, site=site, measured=measured, latency=latency)
    prepared = write_job(prepare(planned, launcher=launcher, jobs_dir=jobs_dir))
    if as_json:
        print_job(prepared.job)
    else:
        click.echo(prepared.directory)
