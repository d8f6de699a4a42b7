"""What the tests of the pages read: every Markdown file of the repository, its fenced blocks, its links."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "Block", "blocks_of", "hpcserve_calls", "pages", "prose_of", "table_rows"]

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>\w*)\s*$")
_ENDS_COMMAND = frozenset({"&&", "||", ";", "|", "&", ">", ">>", "#"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block: what its fence says it is, its text, the page and line where it begins."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """README.md, CONTRIBUTING.md, CHANGELOG.md and everything below docs/."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page; a fence that is not closed is a mistake."""
    opened: tuple[int, str, str] | None = None
    text: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        found = _FENCE.match(line)
        if opened is None:
            if found is not None:
                opened, text = (number + 1, found["language"], found["fence"]), []
        elif line.rstrip() == opened[2]:
            yield Block(page=page, line=opened[0], language=opened[1], text="\n".join(text) + "\n")
            opened = None
        else:
            text.append(line)
    if opened is not None:
        raise ValueError(f"{page}:{opened[0]}: a fence is not closed")


def prose_of(page: Path) -> str:
    """A page without its fenced blocks."""
    kept, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def table_rows(page: Path) -> Iterator[list[str]]:
    """The cells of every row of every table of a page, heads too; `\\|` stands for a bar inside a cell."""
    for line in prose_of(page).splitlines():
        if line.startswith("|") and not set(line) <= set("|-: "):
            yield [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def hpcserve_calls(shell: str) -> Iterator[list[str]]:
    """The arguments of every call of `hpcserve` in lines of shell, also behind other words or inside `$(...)`."""
    for line in re.sub(r"\\\n\s*", " ", shell).splitlines():
        for inner in re.findall(r"\$\(([^()]*)\)", line):
            yield from hpcserve_calls(inner)
        if "hpcserve" not in line:  # prose beside commands need not be shell
            continue
        lexer = shlex.shlex(re.sub(r"\$\([^()]*\)", "X", line), posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        words = list(lexer)
        while "hpcserve" in words:
            words = words[words.index("hpcserve") + 1 :]
            end = next((at for at, word in enumerate(words) if word in _ENDS_COMMAND), len(words))
            yield words[:end]
            words = words[end:]
