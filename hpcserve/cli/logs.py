"""`hpcserve logs`: what a job and its workers wrote."""

import time
from collections.abc import Iterator
from pathlib import Path

import click

from hpcserve.cli.options import examples, job_argument, job_roots, jobs_dir_of_old_jobs_option
from hpcserve.discovery import log_tail, printable
from hpcserve.errors import NotFoundError
from hpcserve.scheduler import find_job

__all__ = ["logs"]

_LOOK_S = 0.5


@click.command(
    epilog=examples("hpcserve logs chat", "hpcserve logs chat decode-0 -f", "hpcserve logs chat router -n 100")
)
@job_argument
@click.argument("worker", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on printing what is written, until Ctrl-C.")
@click.option(
    "-n", "--lines", type=click.IntRange(min=0), default=20, show_default=True, help="Last lines of each log."
)
@jobs_dir_of_old_jobs_option
def logs(job: str, worker: str | None, follow: bool, lines: int, jobs_dir: Path | None) -> None:
    """Print the last lines of JOB's logs, or of one: a worker's id, `router`, `agent.NODE`, `slurm.out`."""
    folder = find_job(job, job_roots(jobs_dir)).directory / "logs"
    paths = [_one(folder, worker)] if worker is not None else _every(folder)
    single = worker is not None
    places = {path: path.stat().st_size for path in paths}  # before the tails: what comes meanwhile is followed
    for path in paths:
        if not single:
            click.echo(f"==> {path.name} <==")
        for line in log_tail(path, lines, blank=True):
            click.echo(line)
    if follow:
        for path, line in _new_lines(folder, places, single=single):
            click.echo(line if single else f"{path.stem}: {line}")


def _every(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _one(folder: Path, wanted: str) -> Path:
    names = {path.name for path in _every(folder)}
    for name in (wanted, f"{wanted}.log", f"{wanted}.out"):
        if name in names:
            return folder / name
    known = ", ".join(sorted(name.removesuffix(".log") for name in names)) or "none yet"
    raise NotFoundError(f"no log of `{wanted}` in {folder}", remedy=f"logs that are there: {known}")


def _new_lines(folder: Path, places: dict[Path, int], *, single: bool) -> Iterator[tuple[Path, str]]:
    """Whole lines that are added behind `places`, of logs that appear later too; ends never."""
    while True:
        for path in tuple(places) if single else _every(folder):
            with path.open("rb") as file:
                file.seek(places.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            places[path] = places.get(path, 0) + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                yield path, printable(line)
        time.sleep(_LOOK_S)
