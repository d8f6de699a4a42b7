"""Pages that cannot drift from the code: their links, commands and YAML are checked against it."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hpcserve.cli import program
from hpcserve.nouns import Noun
from hpcserve.site import load_service, load_site, load_sweep
from tests.docs.pages import ROOT, blocks_of, hpcserve_calls, pages, prose_of

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FIRST_SCREEN_LINES = 24


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    dead = []
    for target in _LINK.findall(prose_of(page)):
        path, _, heading = target.partition("#")
        if path.startswith(("http://", "https://")):
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (heading and heading not in _anchors(file)):
            dead.append(target)
    assert not dead


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives headings: lower case, spaces to dashes, punctuation dropped."""
    titles = [line.lstrip("#").strip() for line in prose_of(page).splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _commands() -> Iterator[tuple[str, list[str]]]:
    """Every call of hpcserve that pages, examples and --help show, with the place where it stands."""
    for page in pages():
        name = str(page.relative_to(ROOT))
        shell = [
            (f"{name}:{block.line}", block.text) for block in blocks_of(page) if block.language in {"sh", "console"}
        ]
        indented = "\n".join(line for line in prose_of(page).splitlines() if line.startswith("    "))
        for place, text in [*shell, (name, indented)]:
            yield from ((place, words) for words in hpcserve_calls(_typed(text)))
    for example in sorted([*ROOT.glob("docs/examples/*.yaml"), *ROOT.glob("site_configs/*.yaml")]):
        comments = "\n".join(re.findall(r"^# {3}(.*)$", example.read_text(encoding="utf-8"), flags=re.MULTILINE))
        yield from ((str(example.relative_to(ROOT)), words) for words in hpcserve_calls(comments))
    for name, command in _every_command(program, "hpcserve"):
        lines = "\n".join(line for line in (command.epilog or "").splitlines() if line.startswith("  "))
        yield from ((f"{name} --help", words) for words in hpcserve_calls(lines))


def _typed(text: str) -> str:
    """What a person types of a block: the lines behind `$ ` where there are such, else all."""
    prompted = [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    return "\n".join(prompted) if prompted else text


def _every_command(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for verb, below in command.commands.items():
            yield from _every_command(below, f"{name} {verb}")


def test_every_command_that_is_shown_parses(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, command in _every_command(program, "hpcserve"):
        if not isinstance(command, click.Group):
            monkeypatch.setattr(command, "callback", lambda **_: 0)
    monkeypatch.delenv("HPCSERVE_SITE", raising=False)
    shown, wrong = 0, []
    for place, words in _commands():
        shown += 1
        try:
            program.main(words, prog_name="hpcserve", standalone_mode=False)
        except click.ClickException as error:
            wrong.append(f"{place}: hpcserve {' '.join(words)}: {error.format_message()}")
    assert not wrong, "\n".join(wrong)
    assert shown > 50


def test_commands_are_found_wherever_they_stand() -> None:
    shell = (
        'eval "$(hpcserve url chat --env)"   # a comment, hpcserve nothing\n'
        "hpcserve a b && hpcserve c > d | e\n"
        "x hpcserve f \\\n  -n 3\n"
    )
    assert list(hpcserve_calls(shell)) == [["url", "chat", "--env"], ["a", "b"], ["c"], ["f", "-n", "3"]]


def _whole_documents() -> list[tuple[str, str]]:
    """YAML that says what it is: blocks of pages and files of examples that begin with `schema:`."""
    blocks = [(f"{block.page.name}:{block.line}", block.text) for page in pages() for block in blocks_of(page)]
    files = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(ROOT.glob("docs/examples/*.yaml"))]
    return [(place, text) for place, text in [*blocks, *files] if re.match(r"(#.*\n)*schema:", text)]


@pytest.mark.parametrize(("place", "text"), _whole_documents(), ids=lambda value: value if len(value) < 60 else "")
def test_yaml_that_is_shown_loads(place: str, text: str) -> None:
    loaded: Noun
    if "hpcserve.service/" in text:
        loaded = load_service(text, source=place, site=None)
    elif "hpcserve.site/" in text:
        loaded = load_site(text, source=place)
    else:
        loaded = load_sweep(text, source=place)
    assert loaded


def test_the_first_screen_of_the_readme_names_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:_FIRST_SCREEN_LINES]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for target in ("demo", "test"):
        assert any(line.startswith(f"make {target}") for line in lines)
        assert target in targets


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not a git checkout")
def test_no_file_says_where_it_was_written() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    here = re.compile(rf"{re.escape(str(ROOT))}\b|{re.escape(str(Path('/root')))}/".encode())
    files = [ROOT / name for name in listed.split("\0") if name]
    assert not [path.name for path in files if path.is_file() and here.search(path.read_bytes())]
