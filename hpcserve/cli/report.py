"""`hpcserve report`: what the runs of a sweep say together."""

from pathlib import Path

import click

from hpcserve.cli.options import examples, json_option, print_record
from hpcserve.deploy import write_whole
from hpcserve.discovery import read_records
from hpcserve.errors import MissingToolError, NotFoundError
from hpcserve.nouns import Run

__all__ = ["report"]


@click.command(
    epilog=examples("hpcserve report results", "hpcserve report results --html report.html --csv report.csv")
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--csv", "csv_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the table as CSV.")
@click.option("--html", "html_file", type=click.Path(path_type=Path, dir_okay=False), help="Write one HTML page.")
@json_option
def report(*, folder: Path, csv_file: Path | None, html_file: Path | None, as_json: bool) -> None:
    """Goodput of each placement, predicted against measured transfers, and what to do, from the runs in DIR."""
    try:
        from hpcserve.report import csv, html, report_of, text  # noqa: PLC0415 - pandas is an extra
    except ModuleNotFoundError as error:
        raise MissingToolError(
            f"reports need {error.name}, which is not installed", remedy="pip install 'hpcserve[sweep]'"
        ) from None
    if not (folder / "runs").is_dir():
        raise NotFoundError(f"{folder} has no folder `runs`", remedy="give the results folder of `hpcserve sweep`")
    listing = read_records(folder, "runs", Run)
    for name, reason in listing.unreadable.items():
        click.echo(f"warning: runs/{name}.json is left out: {reason}", err=True)
    made = report_of(listing.records.values())
    if csv_file is not None:
        write_whole(csv_file, csv(made).encode(), remedy="name another file with --csv")
    if html_file is not None:
        write_whole(html_file, html(made).encode(), remedy="name another file with --html")
    if as_json:
        print_record(made)
    else:
        click.echo(text(made), nl=False)
        for path in (csv_file, html_file):
            if path is not None:
                click.echo(f"wrote {path}", err=True)
