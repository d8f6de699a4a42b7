"""`hpcserve latency fit`: runs -> a latency file."""

from pathlib import Path

import click

from hpcserve.cli.latency import file_page, latency
from hpcserve.cli.options import Figure, examples, json_option, print_record
from hpcserve.deploy import check_place, write_whole
from hpcserve.discovery import read_records
from hpcserve.errors import HpcserveError, NotFoundError
from hpcserve.latency import fit
from hpcserve.nouns import LatencyFile, Run
from hpcserve.wire import encode_record

__all__ = ["hand_over", "latency_fit", "output_option"]

_REMEDY = "name another file with --output"

output_option = click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the latency file here."
)


@latency.command(
    "fit",
    epilog=examples(
        "hpcserve latency fit results --output tiny-cpu.latency.json",
        "hpcserve latency fit short-prompts long-prompts --placement near --kv-tokens 66144",
    ),
)
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--placement", "placements", multiple=True, help="Only the runs of this placement (may be repeated).")
@click.option("--kv-tokens", type=click.IntRange(min=1), help="KV capacity of one worker, as the engine's log says it.")
@click.option(
    "--router-ms",
    type=Figure(min=0, max=1e6),
    default=0.0,
    help="What router and HTTP take of each TTFT.  [default: it stays in the base of prefill]",
)
@output_option
@json_option
def latency_fit(
    *,
    folders: tuple[Path, ...],
    placements: tuple[str, ...],
    kv_tokens: int | None,
    router_ms: float,
    output: Path | None,
    as_json: bool,
) -> None:
    """Fit prefill and decode times to the valid runs in DIR, the results of `hpcserve sweep`.

    Relative least squares; no coefficient is negative. The error that is left is said with it. Runs that cannot tell
    the coefficients apart are refused, with the runs that are missing: sweeps of several prompt lengths are fitted
    together by naming their folders.
    """
    if output is not None:
        check_place(output, remedy=_REMEDY)
    runs = [run for folder in folders for run in _runs_in(folder)]
    if placements:
        there = sorted({run.placement for run in runs})
        runs = [run for run in runs if run.placement in placements]
        if not runs:
            raise NotFoundError(
                f"no run is of placement {', '.join(placements)}", remedy=f"there are {', '.join(there) or 'no runs'}"
            )
    hand_over(fit(runs, kv_tokens=kv_tokens, router_ms=router_ms), output=output, as_json=as_json)


def hand_over(file: LatencyFile, *, output: Path | None, as_json: bool) -> None:
    """Print a latency file, and write it where one was asked for."""
    if output is not None:
        write_whole(output, encode_record(file), remedy=_REMEDY)
    if as_json:
        print_record(file)
    else:
        click.echo(file_page(file), nl=False)
    if output is not None:
        click.echo(f"wrote {output}", err=True)


def _runs_in(folder: Path) -> list[Run]:
    if not (folder / "runs").is_dir():
        raise NotFoundError(f"{folder} has no folder `runs`", remedy="give the results folder of `hpcserve sweep`")
    listing = read_records(folder, "runs", Run)
    for name, reason in listing.unreadable.items():
        click.echo(f"warning: {folder}/runs/{name}.json is left out: {reason}", err=True)
    if not listing.records:
        raise HpcserveError(f"{folder}/runs holds no run", remedy="measure with `hpcserve sweep` first")
    return list(listing.records.values())
