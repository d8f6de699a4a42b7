"""Slurm host lists: `node[01-04,07]` <-> names, without Slurm."""

import re
from collections.abc import Iterable, Iterator
from itertools import product

from hpcserve.errors import HpcserveError

__all__ = ["MOST_HOSTS", "HostListError", "expand_hosts", "fold_hosts", "split_hosts"]

MOST_HOSTS = 65536
"""Names that one expression may stand for: more than any cluster has nodes, little enough to hold in memory."""

_LINE = 80
_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_NAME = re.compile(r"[^\s,\[\]]+")
_NUMBERED = re.compile(r"(.*?[^0-9]|)([0-9]{1,18})")


class HostListError(HpcserveError):
    """A text that is not a host list; the message names it and what is wrong with it."""

    exit_code = 2


def expand_hosts(expression: str) -> tuple[str, ...]:
    """The names that a host list stands for, in Slurm's order, duplicates kept.

    As in Slurm, numbers are padded to the width of a range's low bound, and with several brackets the last one runs
    fastest, then the first. Raises HostListError for what is not a host list and for more than 65536 names.
    """
    names: list[str] = []
    for part in split_hosts(expression):
        for name in _expand_part(part, expression):
            names.append(name)
            if len(names) > MOST_HOSTS:
                raise _error(expression, f"it stands for more than {MOST_HOSTS} names")
    return tuple(names)


def fold_hosts(names: Iterable[str]) -> str:
    """The shortest host list that `expand_hosts` turns back into these names in this order.

    Neighbours that differ in their last number share one bracket. Raises HostListError where there is no name, or one
    that holds a comma, bracket or space.
    """
    folded: list[str] = []
    prefix: str | None = None
    ranges: list[tuple[str, int, int]] = []

    def close() -> None:
        if prefix is not None:
            folded.append(_written(prefix, ranges))

    for name in names:
        if not _NAME.fullmatch(name):
            raise _error(name, "it is not a host name")
        match = _NUMBERED.fullmatch(name)
        if match is None or not match[1]:
            close()
            folded.append(name)
            prefix = None
            continue
        if match[1] != prefix:
            close()
            prefix, ranges = match[1], []
        number = int(match[2])
        if ranges and match[2] == str(ranges[-1][2] + 1).zfill(len(ranges[-1][0])):
            ranges[-1] = (ranges[-1][0], ranges[-1][1], number)
        else:
            ranges.append((match[2], number, number))
    close()
    if not folded:
        raise _error("", "it names no host")
    return ",".join(folded)


def _written(prefix: str, ranges: list[tuple[str, int, int]]) -> str:
    parts = [low if first == last else f"{low}-{str(last).zfill(len(low))}" for low, first, last in ranges]
    return prefix + (parts[0] if len(ranges) == 1 and ranges[0][1] == ranges[0][2] else f"[{','.join(parts)}]")


def _error(expression: str, reason: str) -> HostListError:
    return HostListError(f"host list `{_shown(expression)}`: {reason}", remedy="write it as in node[01-04,07],login1")


def _shown(text: str) -> str:
    """A text kept to about one line of a terminal."""
    return text if len(text) <= _LINE else text[: _LINE - 3] + "..."


def split_hosts(expression: str) -> Iterator[str]:
    """Parts between the commas that are outside brackets; raises HostListError where these do not match."""
    depth, start = 0, 0
    for index, character in enumerate(expression):
        if character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == "," and depth == 0:
            yield expression[start:index]
            start = index + 1
        if depth not in (0, 1):
            raise _error(expression, "its brackets do not match")
    if depth:
        raise _error(expression, "its brackets do not match")
    yield expression[start:]


def _expand_part(part: str, expression: str) -> Iterator[str]:
    pieces = _BRACKETS.split(part)
    literals, brackets = pieces[0::2], pieces[1::2]
    if any(literal and not _NAME.fullmatch(literal) for literal in literals):
        raise _error(expression, "it holds a space")
    if not brackets:
        if not part:
            raise _error(expression, "a name between its commas is empty")
        yield part
        return
    numbers = [_numbers(bracket, expression) for bracket in brackets]
    count = 1
    for choices in numbers:
        count *= len(choices)
    if count > MOST_HOSTS:
        raise _error(expression, f"it stands for more than {MOST_HOSTS} names")
    # Slurm expands all brackets but the last with the first running fastest, then the last within each.
    for chosen in product(*reversed(numbers[:-1])):
        before = "".join(literal + number for literal, number in zip(literals, reversed(chosen), strict=False))
        for number in numbers[-1]:
            yield before + literals[-2] + number + literals[-1]


def _numbers(bracket: str, expression: str) -> list[str]:
    numbers: list[str] = []
    for item in bracket.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise _error(expression, f"`{_shown(item)}` in its brackets is not a number or a range")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low):
            raise _error(expression, f"the range `{_shown(item)}` runs backwards")
        if int(high) - int(low) + len(numbers) >= MOST_HOSTS:
            raise _error(expression, f"it stands for more than {MOST_HOSTS} names")
        numbers += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return numbers
