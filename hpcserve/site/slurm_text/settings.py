"""`Key=value` words, as Slurm's configuration files and `scontrol` write them, with their places."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from hpcserve.site.mistakes import Mistakes, Place

__all__ = ["Include", "Setting", "configuration", "printed"]


class Setting(NamedTuple):
    """One `Key=value`. Slurm takes keys in any case: `name` is the key in lower case, `key` as it is written."""

    key: str
    value: str
    line: int
    column: int
    value_line: int
    value_column: int

    @property
    def place(self) -> Place:
        """Where the key stands."""
        return Place(self.line, self.column)

    @property
    def value_place(self) -> Place:
        """Where the value starts."""
        return Place(self.value_line, self.value_column)

    @property
    def name(self) -> str:
        """The key as Slurm compares it."""
        return self.key.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """A line `include FILE`; what stands in that file is not known here."""

    file: str
    place: Place


_COMMENT = re.compile(r"(?<!\\)#.*")
_PAIR = re.compile(r'([A-Za-z0-9_.]++)\s*+[-+*/]?=\s*+(?:"([^"]*+)"|(\S*+))\s*+')
"""As s_p_parse_line of Slurm's parse_config.c takes them: blanks around `=`, a value in quotes or without blanks."""
_INCLUDE = re.compile(r"\s*+include\s++(\S++)", re.IGNORECASE)
_WORD = re.compile(r"\S++")
_BLANK = re.compile(r"\s*+")
_PRINTED_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][A-Za-z0-9_:/]*+)=", re.MULTILINE)


def configuration(text: str, mistakes: Mistakes) -> Iterator[Include | tuple[Setting, ...]]:
    """The lines of a configuration file, each as its settings; comments are gone, continued lines are one."""
    for pieces in _logical_lines(text):
        include = _INCLUDE.match(pieces[0][1])
        if include and "=" not in include[1]:
            yield Include(file=include[1], place=Place(pieces[0][0], include.start(1) + 1))
            continue
        settings = tuple(_pairs(pieces, mistakes))
        if settings:
            yield settings


def _logical_lines(text: str) -> Iterator[list[tuple[int, str]]]:
    """Lines as (line number, text) pieces: more than one where a backslash at the end continues them."""
    pieces: list[tuple[int, str]] = []
    for number, physical in enumerate(text.split("\n"), start=1):
        line = _COMMENT.sub("", physical)
        bare = line.rstrip()
        pieces.append((number, bare.removesuffix("\\")))
        if not bare.endswith("\\"):
            if any(piece.strip() for _, piece in pieces):
                yield pieces
            pieces = []
    if any(piece.strip() for _, piece in pieces):
        yield pieces


def _pairs(pieces: list[tuple[int, str]], mistakes: Mistakes) -> Iterator[Setting]:
    line = " ".join(piece for _, piece in pieces)
    first = pieces[0][0]
    starts = [0]
    for _, piece in pieces[:-1]:
        starts.append(starts[-1] + len(piece) + 1)

    def place_at(offset: int) -> Place:
        if len(pieces) == 1:
            return Place(first, offset + 1)
        index = bisect_right(starts, offset) - 1
        return Place(pieces[index][0], offset - starts[index] + 1)

    at = _end(_BLANK, line, 0)
    while at < len(line):
        pair = _PAIR.match(line, at)
        if pair is None:
            end = _end(_WORD, line, at)
            mistakes.add(place_at(at), f"`{line[at:end]}`", "`Key=value` was wanted", "write it so, or remove it")
            at = _end(_BLANK, line, end)
        else:
            group = 2 if pair[2] is not None else 3
            yield Setting(pair[1], pair[group], *place_at(at), *place_at(pair.start(group)))
            at = pair.end()


def _end(pattern: re.Pattern[str], line: str, at: int) -> int:
    match = pattern.match(line, at)
    return at if match is None else match.end()


def printed(text: str, heads: frozenset[str]) -> Iterator[tuple[Setting, ...]]:
    """The records that `scontrol show` prints: each begins with a key of `heads`, wherever it stands in a line.

    A value goes on to the next key (`OS=Linux 6.1 #1 SMP`); text before the first record is passed over.
    """
    record: list[Setting] = []
    found = list(_PRINTED_KEY.finditer(text))
    ends = [match.start() for match in found[1:]] + [len(text)] * bool(found)
    line, line_start, seen = 1, 0, 0
    for match, end in zip(found, ends, strict=True):
        start = match.start(1)
        newlines = text.count("\n", seen, start)
        if newlines:
            line += newlines
            line_start = text.rfind("\n", seen, start) + 1
        seen = start
        if match[1] in heads:
            if record:
                yield tuple(record)
            record = []
        elif not record:
            continue
        record.append(
            Setting(
                match[1],
                text[match.end() : end].strip(),
                line,
                start - line_start + 1,
                line,
                match.end() - line_start + 1,
            )
        )
    if record:
        yield tuple(record)
