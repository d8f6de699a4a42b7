"""What a site file still lacks after an import."""

import re
from collections.abc import Iterator

from hpcserve.site.learning.written import NOT_LEARNT

__all__ = ["still_empty"]

_KEY = re.compile(r"( *)(- +)?([^\s#:][^:#]*):(?:\s+(.*))?$")
"""A key of block YAML: its depth, whether it begins an item of a list, the key, what stands behind it."""


def still_empty(text: str) -> Iterator[tuple[int, str]]:
    """For each gap that an import left and nobody filled: its line, its key with those above it, what belongs there."""
    above: list[tuple[tuple[int, bool], str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _KEY.match(line)
        if match is None:
            continue
        before, dash, key, behind = match.groups(default="")
        # An item of a list may be as deep as the list's own key, and is below it.
        if dash:
            _go_up(above, (len(before), True))
            name = behind.partition(" #")[0].strip("'\"")
            above.append(((len(before), True), f"[{name}]" if key == "name" else ""))
        depth = (len(before) + len(dash), False)
        _go_up(above, depth)
        above.append((depth, key if len(above) == 0 else f".{key}"))
        value, mark, needed = behind.partition(f"# {NOT_LEARNT}")
        if mark and value.strip() in {"", "{}"}:
            yield number, f"{''.join(word for _, word in above)}: {needed}"


def _go_up(above: list[tuple[tuple[int, bool], str]], depth: tuple[int, bool]) -> None:
    while above and above[-1][0] >= depth:
        above.pop()
