"""`hpcserve site import`: what a cluster's tools print, read and told."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from hpcserve.cli.collected_files import files_of, text_of
from hpcserve.cli.options import Figure, examples, json_option
from hpcserve.cli.site_summary import summary
from hpcserve.cli.site_writing import Wishes, write_into
from hpcserve.errors import InputError, Mistake
from hpcserve.provision import Collected, collect, commands_in_words
from hpcserve.scheduler import clean_environment
from hpcserve.site import KINDS, HostListError, expand_hosts, kind_named, recognise
from hpcserve.site.learning import Reading

__all__ = ["import_"]

_KINDS = tuple(kind for kind in KINDS if not kind.name.endswith("-failure"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """One file: what was understood of it, and what was not."""

    file: str
    kind: str | None
    parsed: Any = None
    host: str | None = None
    """The node that printed it, where it was asked here and now."""
    understood: Mapping[str, Any] = field(default_factory=dict)
    mistakes: tuple[Mistake, ...] = ()

    @property
    def told(self) -> Mapping[str, Any]:
        """The file as plain data; what was wrong with it beside what was understood."""
        told = {**self.understood, "file": self.file, "kind": self.kind}
        told = {key: told[key] for key in ("file", "kind", *self.understood)}
        if self.mistakes:
            told["error_line"] = self.mistakes[0].line
            told["mistakes"] = [
                {
                    "line": one.line,
                    "column": one.column,
                    "found": one.found,
                    "wanted": one.wanted,
                    "remedy": one.remedy,
                }
                for one in self.mistakes
            ]
        return told


@click.command(
    "import",
    epilog=examples(
        "hpcserve site import --live --into my-cluster.yaml",
        "hpcserve site import --live --account project-7 --nodes gpu01 --into my-cluster.yaml",
        "hpcserve site import --print-commands",
        "hpcserve site import collected --into my-cluster.yaml",
        "hpcserve site import topology.txt --into my-cluster.yaml --take 'switches[leaf1].hosts'",
        "ibnetdiscover | hpcserve site import - --dry-run --json",
        "hpcserve site import gres.txt --kind gres --dry-run --json",
    )
    + "\n\n\b\nKinds:\n"
    + "\n".join(f"  {kind.name:24} {kind.about}" for kind in _KINDS),
)
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option(
    "--dry-run", is_flag=True, help="Say what is understood, and with --into what would change; write nothing."
)
@click.option(
    "--kind",
    "kind_name",
    shell_complete=lambda _context, _parameter, begun: [one.name for one in _KINDS if one.name.startswith(begun)],
    metavar="KIND",
    help="What the files are, where they do not show it themselves.",
)
@click.option("--into", type=click.Path(path_type=Path, dir_okay=False), help="The site file to begin or to refresh.")
@click.option(
    "--base", type=click.Path(path_type=Path, dir_okay=False), help="Begin a new file with a copy of this one."
)
@click.option("--live", is_flag=True, help="Ask Slurm here and the tools of some nodes instead of reading files.")
@click.option(
    "--nodes", metavar="HOSTS", help="With --live: these nodes, as in node[01-04].  [default: one of each kind]"
)
@click.option("--account", help="With --live: the Slurm account of the short job steps.")
@click.option(
    "--take", multiple=True, metavar="KEY", help="Let what was learnt replace what the file says; `all` for all."
)
@click.option(
    "--efficiency",
    type=Figure(0, 1, min_open=True),
    metavar="SHARE",
    help="The share of nominal link rates that transfers reach here; without it they are written as unknown.",
)
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.option("--with-mistakes", is_flag=True, help="Write even where a file that was right would have mistakes then.")
@click.option("--print-commands", is_flag=True, help="Print the commands that collect everything, and end.")
@json_option
def import_(
    *,
    files: tuple[str, ...],
    dry_run: bool,
    kind_name: str | None,
    into: Path | None,
    base: Path | None,
    live: bool,
    nodes: str | None,
    account: str | None,
    take: tuple[str, ...],
    efficiency: float | None,
    yes: bool,
    with_mistakes: bool,
    print_commands: bool,
    as_json: bool,
) -> None:
    """Read what the cluster's tools print, and write it into a site file.

    FILE may be a folder, of which all files are read, or `-` for standard input.

    Which tool printed a file is seen from what stands in it. Every mistake of every file is told at once. The site
    file keeps comments, order and what was edited by hand; the difference is shown before it is written.
    """
    if print_commands:
        click.echo(commands_in_words(), nl=False)
        return
    _check_kind(kind_name)
    _check_use(files, into=into, live=live, only_live={"--nodes": nodes, "--account": account}, dry_run=dry_run)
    collected = _collect(nodes, account) if live else Collected(texts=())
    found = [_read_text(text_of(file), file, kind_name) for file in files_of(files)]
    notes = list(collected.notes)
    found += _read_collected(collected, notes)
    mistakes = [mistake for one in found for mistake in one.mistakes]
    if into is None or mistakes:
        _tell_notes(notes)
    if into is None or (mistakes and as_json):
        _tell_understood(found, as_json=as_json)
    if mistakes:
        raise InputError(mistakes)
    if into is not None:
        wishes = Wishes(
            into=into,
            base=base,
            take=take,
            efficiency=efficiency,
            dry_run=dry_run,
            yes=yes,
            with_mistakes=with_mistakes,
            as_json=as_json,
        )
        readings = [Reading(source=one.file, kind=one.kind or "", parsed=one.parsed, host=one.host) for one in found]
        write_into(readings, wishes, notes=notes)


def _check_use(
    files: tuple[str, ...], *, into: Path | None, live: bool, only_live: Mapping[str, str | None], dry_run: bool
) -> None:
    if not files and not live:
        raise click.UsageError("name the files to read, or say --live")
    for option, value in only_live.items():
        if value is not None and not live:
            raise click.UsageError(f"{option} goes with --live")
    if into is None and not dry_run:
        raise click.UsageError("say --into FILE for the site file to write, or --dry-run")


def _check_kind(name: str | None) -> None:
    """Raises UsageError, once and not for every file, where no kind has the name."""
    try:
        if name is not None:
            kind_named(name)
    except InputError as error:
        (mistake,) = error.mistakes
        raise click.UsageError(f"--kind {mistake.found}: {mistake.wanted}; {mistake.remedy}") from None


def _collect(nodes: str | None, account: str | None) -> Collected:
    try:
        hosts = expand_hosts(nodes) if nodes is not None else None
    except HostListError as error:
        raise click.UsageError(str(error)) from None
    return collect(
        nodes=hosts,
        account=account,
        environment=clean_environment(os.environ),
        say=lambda command: click.echo(f"running: {command}", err=True),
    )


def _read_collected(collected: Collected, notes: list[str]) -> list[_Read]:
    """What was printed here and now; a text that is not understood is left out and noted, unless all depends on it."""
    found = []
    for printed in collected.texts:
        one = _read_text(printed.text, printed.source, printed.kind, host=printed.host)
        if one.mistakes and not printed.needed:
            notes.append(f"left out, as it is not understood: {one.mistakes[0]}")
        else:
            found.append(one)
    return found


def _tell_notes(notes: list[str]) -> None:
    for note in notes:
        click.echo(f"note: {note}", err=True)


def _tell_understood(found: list[_Read], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps([one.told for one in found], indent=1))
    else:
        for one in found:
            click.echo(summary(one.file, one.kind, one.understood), nl=False)


def _read_text(text: str, file: str, kind_name: str | None, *, host: str | None = None) -> _Read:
    source = "stdin" if file == "-" else file
    name = None
    try:
        kind = kind_named(kind_name) if kind_name else recognise(text, source)
        name = kind.name
        parsed = kind.parse(text, source)
    except InputError as error:
        return _Read(file=file, kind=name, mistakes=error.mistakes)
    return _Read(
        file=file,
        kind=name,
        parsed=parsed,
        host=host,
        understood=kind.understood(parsed),
        mistakes=kind.mistakes(parsed),
    )
