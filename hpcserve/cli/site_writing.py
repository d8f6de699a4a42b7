"""What `hpcserve site import --into` does with texts that were read: a diff, a question, a site file."""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from hpcserve.deploy import SiteFile, read_text
from hpcserve.discovery import typed_path
from hpcserve.errors import HpcserveError, InputError, Mistake
from hpcserve.nouns import Learnt
from hpcserve.site import load_site, unknown_rates
from hpcserve.site.learning import Facts, Reading, Refreshed, draft_of, gather, refresh, skeleton, still_empty

__all__ = ["Wishes", "write_into"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What the command line said about the writing."""

    into: Path
    base: Path | None
    take: tuple[str, ...]
    efficiency: float | None
    dry_run: bool
    yes: bool
    with_mistakes: bool
    as_json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What an import comes to before anything is written."""

    path: Path
    before: str | None
    """The file's text; None where there is none yet."""
    refreshed: Refreshed
    mistakes: tuple[Mistake, ...]
    notes: tuple[str, ...]
    disagreements: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the file would be another."""
        return self.refreshed.text != self.before

    @property
    def diff(self) -> str:
        """A unified diff from the file as it is."""
        return self.refreshed.diff(self.before or "", file=str(self.path))


def write_into(readings: Iterable[Reading], wishes: Wishes, *, notes: Sequence[str] = ()) -> None:
    """Show what would change and write it once that is agreed to.

    Raises HpcserveError where nothing was written though something would change, unless it was a dry run.
    """
    file = SiteFile.read(wishes.into)
    facts = gather(readings)
    refreshed = refresh(
        _start(file, facts, wishes),
        draft_of(facts),
        source=str(wishes.into),
        record=file.learnt.values,
        take=wishes.take,
        efficiency=wishes.efficiency,
    )
    outcome = _Outcome(
        path=wishes.into,
        before=file.text,
        refreshed=refreshed,
        mistakes=_mistakes(refreshed.text, wishes.into),
        notes=(*notes, *facts.notes, *refreshed.notes),
        disagreements=facts.disagreements,
    )
    if not wishes.as_json:
        _tell(outcome)
    refusal = None if wishes.dry_run else _refusal(outcome, wishes)
    writes = refusal is None and not wishes.dry_run
    if writes:
        file.write(refreshed.text, Learnt(schema_="hpcserve.learnt/1", values=dict(refreshed.record)))
    if wishes.as_json:
        _tell_json(outcome, written=writes and outcome.changed)
    elif writes:
        _close(outcome)
    if refusal is not None:
        raise refusal


def _start(file: SiteFile, facts: Facts, wishes: Wishes) -> str:
    """The text that is refreshed: the file's own, else the base's, else an empty site's."""
    if file.text is not None and file.text.strip():
        if wishes.base is not None:
            raise click.UsageError(f"{wishes.into} exists: --base is for a new file")
        return file.text
    if wishes.base is not None:
        return read_text(typed_path(wishes.base))
    cluster = facts.slurm.cluster if facts.slurm is not None else None
    return skeleton(cluster or wishes.into.stem)


def _mistakes(text: str, path: Path) -> tuple[Mistake, ...]:
    try:
        load_site(text, source=str(path))
    except InputError as error:
        return error.mistakes
    return ()


def _refusal(outcome: _Outcome, wishes: Wishes) -> HpcserveError | None:
    """Why nothing is written; None where it is, or where there is nothing to write."""
    if not outcome.changed:
        return None
    mistakes = outcome.mistakes
    was_right = outcome.before is not None and not _mistakes(outcome.before, outcome.path)
    if mistakes and was_right and not wishes.with_mistakes:
        listed = "".join(f"\n  {mistake}" for mistake in mistakes)
        return HpcserveError(
            f"{outcome.path} has no mistake now and would have {len(mistakes)}; nothing was written{listed}\n",
            remedy="import what is missing too, or say --with-mistakes and correct it by hand",
        )
    if wishes.yes:
        return None
    if wishes.as_json or not sys.stdin.isatty():
        return HpcserveError(f"nothing was written into {outcome.path}: nobody was asked", remedy="say --yes")
    if click.confirm(f"Write this into {outcome.path}?", err=True):
        return None
    return HpcserveError(f"nothing was written into {outcome.path}")


def _tell(outcome: _Outcome) -> None:
    """The diff on stdout, everything about it on stderr."""
    for note in outcome.notes:
        click.echo(f"note: {note}", err=True)
    for disagreement in outcome.disagreements:
        click.echo(f"sources disagree: {disagreement}", err=True)
    for conflict in outcome.refreshed.conflicts:
        click.echo(f"kept: {conflict}", err=True)
    if outcome.changed:
        click.echo(outcome.diff, nl=False)
    else:
        click.echo(f"{outcome.path} says all of this already")


def _close(outcome: _Outcome) -> None:
    """What is left to do."""
    text, path = outcome.refreshed.text, outcome.path
    if outcome.changed:
        click.echo(f"wrote {path}", err=True)
    for line, needed in still_empty(text):
        click.echo(f"{path}:{line}: fill in {needed}", err=True)
    if outcome.mistakes:
        found = _so_many(len(outcome.mistakes), "mistake")
        click.echo(f"until then `hpcserve site check {path}` finds {found}", err=True)
        return
    unknown = unknown_rates(load_site(text, source=str(path)))
    if unknown:
        verb = "is" if len(unknown) == 1 else "are"
        click.echo(f"{_so_many(len(unknown), 'rate')} {verb} unknown: `hpcserve site measure` measures them", err=True)


def _so_many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _tell_json(outcome: _Outcome, *, written: bool) -> None:
    told = {
        "file": str(outcome.path),
        "changed": outcome.changed,
        "written": written,
        "diff": outcome.diff,
        "kept": [
            {"key": one.key, "file": one.file_says, "learnt": one.learnt, "source": one.source}
            for one in outcome.refreshed.conflicts
        ],
        "disagreements": list(outcome.disagreements),
        "notes": list(outcome.notes),
        "empty": [{"line": line, "needed": needed} for line, needed in still_empty(outcome.refreshed.text)],
        "mistakes": [str(mistake) for mistake in outcome.mistakes],
    }
    click.echo(json.dumps(told, indent=1))
