"""`hpcserve logs`: what a job and its workers wrote."""

import time
from collections.abc import Iterator
from pathlib import Path

import click

from hpcserve.cli.options import examples, job_argument, job_roots, jobs_dir_option
from hpcserve.errors import NotFoundError
from hpcserve.scheduler import find_job, log_tail

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
@jobs_dir_option
def logs(job: str, worker: str | None, follow: bool, lines: int, jobs_dir: Path | None) -> None:
    """Print the last lines of JOB's logs, or of one: a worker's id, `router`, `agent.NODE`, `slurm.out`."""
    folder = find_job(job, job_roots(jobs_dir)).directory / "logs"
    paths = [_one(folder, worker)] if worker is not None else _every(folder)
    single = worker is not None
    for path in paths:
        if not single:
            click.echo(f"==> {path.name} <==")
        tail = log_tail(path, lines)
        if tail:
            click.echo(tail)
    if follow:
        for path, text in _new_text(folder, paths, single=single):
            click.echo(text if single else "".join(f"{path.stem}: {line}\n" for line in text.splitlines()), nl=False)


def _every(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _one(folder: Path, wanted: str) -> Path:
    names = {path.name for path in _every(folder)}
    for name in (wanted, f"{wanted}.log", f"{wanted}.out"):
        if name in names:
            return folder / name
    known = ", ".join(sorted(name.removesuffix(".log") for name in names)) or "none yet"
    raise NotFoundError(f"no log of `{wanted}` in {folder}", remedy=f"logs that are there: {known}")


def _new_text(folder: Path, paths: list[Path], *, single: bool) -> Iterator[tuple[Path, str]]:
    """What is added to the logs from now on, of logs that appear later too; ends never. Whole lines, where it can."""
    places = {path: path.stat().st_size for path in paths}
    while True:
        for path in paths if single else _every(folder):
            with path.open("rb") as file:
                file.seek(places.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            if whole:
                places[path] = places.get(path, 0) + len(whole)
                yield path, whole.decode(errors="replace")
        time.sleep(_LOOK_S)
