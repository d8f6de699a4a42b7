"""Text that a tool printed on some node: its lines without colours and host prefixes, and the mistakes found in it."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from hpcserve.site.mistakes import Mistakes, Place

__all__ = ["LONGEST_LINE", "MOST_LINES_OF_A_HOST", "Line", "lines_of", "without_colours"]

LONGEST_LINE = 4096
"""Characters; no tool that is read here prints a longer line, and a limit keeps every pattern's time in bounds."""
MOST_LINES_OF_A_HOST = 50_000
"""Far more than `nvidia-smi -q`, the longest of them, prints for 16 GPUs (about 500 lines each)."""

_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}[A-Za-z]")
_HOST_PREFIX = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]{0,253}):(?: |$)")
# Programs that put their own name there, as pdsh puts the host's.
_PROGRAM = re.compile(r"ib[a-z]+|CA|Switch|bash|sh|nvidia-smi|lscpu|ip|srun|ssh|pdsh|error")


class Line(NamedTuple):
    """One line: its number from 1, how many characters stood before `text`, and the text without end and colours."""

    number: int
    before: int
    text: str

    def at(self, column: int = 1) -> Place:
        """The place of a column of `text`, from 1."""
        return Place(self.number, self.before + column)


def without_colours(text: str) -> str:
    """The text without the escape sequences that set colours and underlines."""
    return _COLOUR.sub("", text)


def lines_of(text: str, mistakes: Mistakes, *, most: int | None = None) -> Sequence[Line]:
    """Lines of a text that are not blank; a `host: ` that stands before all of them (pdsh, clush) is cut off.

    Adds a mistake for lines beyond 4096 characters, for output of several hosts in one text, and for more lines than
    `most`, of which none are then given.
    """
    count = text.count("\n")
    if most is not None and count > most:
        mistakes.add(None, f"{count} lines", f"at most {most}: the output of one host", "give one host's output")
        return ()
    raw = without_colours(text).replace("\r\n", "\n").split("\n")
    before = _host_prefix(raw, mistakes)
    lines = []
    for number, line in enumerate(raw, start=1):
        if not line or line.isspace():
            continue
        cut = min(before, len(line))
        if len(line) > LONGEST_LINE:
            mistakes.add(
                Place(number, 1),
                f"a line of {len(line)} characters",
                f"lines of at most {LONGEST_LINE}, as tools print them",
                "give the tool's own output, unchanged",
            )
        elif rest := line[cut:].rstrip():
            lines.append(Line(number, cut, rest))
    return lines


def _host_prefix(raw: Sequence[str], mistakes: Mistakes) -> int:
    """Length of the prefix `host: ` that all lines have; 0 where they have none."""
    hosts: Counter[str] = Counter()
    for line in raw:
        if line and not line.isspace():
            match = _HOST_PREFIX.match(line)
            if match is None or (match[1] not in hosts and _PROGRAM.fullmatch(match[1])):
                return 0
            hosts[match[1]] += 1
    names = sorted(hosts)
    if hosts.total() < 2:  # noqa: PLR2004  (one line is no evidence of a habit)
        return 0
    if len(names) > 1:
        # Two or more lines of each: one `key: value` list of a tool would hardly repeat all of its keys.
        if all(count > 1 for count in hosts.values()):
            mistakes.add(
                None,
                f"lines of several hosts in one text: {', '.join(names[:3])}",
                "the output of one host",
                "give one file for each host (`dshbak -d DIRECTORY` separates them)",
            )
        return 0
    return len(names[0]) + 2
