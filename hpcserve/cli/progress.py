"""Show the Progress of a long step on stderr: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from hpcserve.provision import Progress, Report

__all__ = ["shown_progress"]

_LINE_EVERY_S = 2.0  # in a log; often enough to see that it lives


@contextmanager
def shown_progress() -> Iterator[Report]:
    """A report that shows each Progress while the block runs."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    columns = BarColumn(bar_width=30), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn()
    with Bar(*columns, TextColumn("{task.description}", markup=False), console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0)

        def show(progress: Progress) -> None:
            bar.update(task, description=progress.text, completed=progress.fraction)

        yield show


def _lines() -> Report:
    """A report that writes a line for each new kind of step, and at most one every two seconds within a kind."""
    last_kind, last_s = "", -_LINE_EVERY_S

    def write(progress: Progress) -> None:
        nonlocal last_kind, last_s
        kind, now_s = progress.text.partition(" ")[0], time.monotonic()
        if kind != last_kind or now_s - last_s >= _LINE_EVERY_S:
            last_kind, last_s = kind, now_s
            click.echo(str(progress), err=True)

    return write
