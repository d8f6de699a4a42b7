"""Edits to YAML text that leave every line alone which they do not have to change."""

import io
import json
import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher
from typing import NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from hpcserve.errors import InputError, Mistake
from hpcserve.wire import plain_yaml

__all__ = ["edited"]

_WIDTH = 100_000
"""Lines are never broken: an admin's long line is one on purpose."""

_MERGE = "tag:yaml.org,2002:merge"
_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
"""A line and its end; YAML 1.2 §5.4 takes all three. Of a text that ends in one, a last empty line is matched too."""

_LIST_UNDER_KEY = re.compile(r"^( *)[^\s#-][^\n]*:[ ]*(?:#[^\n]*)?\n(?:[ ]*#[^\n]*\n)*( *)- ", re.MULTILINE)


def edited(text: str, change: Callable[[CommentedMap], None], *, source: str) -> str:
    """The text with `change` applied to its data; lines that say the same as before are the same, byte for byte.

    New lines end as the line that they replace, or the one above them, does: in CR LF in a file of Windows's. Raises
    InputError where the text is no mapping, or no YAML; `source` is its name.
    """
    ours = [_Line(*match.groups()) for match in _LINE.finditer(text) if match[0]]
    unified = "".join(f"{line.text}\n" if line.end else line.text for line in ours)
    data = _load(unified, source)
    before = _dump(data, unified)
    change(data)
    after = _dump(data, unified)
    if after == before:
        return text
    base, theirs = (dumped.removesuffix("\n").split("\n") for dumped in (before, after))
    carried = "".join(line.text + line.end for line in _carry(ours, base, theirs))
    return carried if _say_the_same(carried, after) else after.replace("\n", ours[0].end or "\n")


class _Line(NamedTuple):
    """One line and how it ends: in LF, CR LF or CR; in nothing where the text is over."""

    text: str
    end: str


def _yaml(text: str) -> YAML:
    """A writer that indents lists as the text does: under their key by two, or not at all."""
    writer = YAML(typ="rt")
    writer.preserve_quotes = True
    writer.width = _WIDTH
    first = _LIST_UNDER_KEY.search(text)
    if first is None or len(first[2]) > len(first[1]):
        writer.indent(mapping=2, sequence=4, offset=2)
    return writer


def _load(text: str, source: str) -> CommentedMap:
    try:
        loaded = _yaml(text).load(text)
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        problem = str(getattr(error, "problem", None) or "YAML of another kind").partition("\n")[0]
        raise _refusal(source, line, column, problem) from None
    if not isinstance(loaded, CommentedMap):
        raise _refusal(source, 1, 1, "a text without keys")
    if "<<" in text:
        _check_merge_keys(_yaml(text).compose(text), source)
    return loaded


def _check_merge_keys(root: Node, source: str) -> None:
    """Raise InputError for a merge key: to ruamel.yaml, and to nothing else here, its mapping has the other's keys."""
    pending, seen = [root], {id(root)}
    while pending:
        node = pending.pop()
        pairs = node.value if isinstance(node, MappingNode) else []
        for key, _ in pairs:
            if key.tag == _MERGE:
                mark = key.start_mark
                remedy = "write the keys out; a whole value may stand as an alias, `key: *name`"
                raise _refusal(source, mark.line + 1, mark.column + 1, "a merge key, `<<`", remedy)
        below = [value for _, value in pairs] or (node.value if isinstance(node, SequenceNode) else [])
        fresh = [one for one in below if id(one) not in seen]
        seen.update(map(id, fresh))
        pending += fresh


def _refusal(
    source: str, line: int, column: int, found: str, remedy: str = "correct it, or name a new file to begin with"
) -> InputError:
    mistake = Mistake(
        file=source,
        line=line,
        column=column,
        found=found,
        wanted="a site file was wanted, as plain YAML",
        remedy=remedy,
    )
    return InputError([mistake])


def _dump(data: CommentedMap, like: str) -> str:
    stream = io.StringIO()
    _yaml(like).dump(data, stream)
    return stream.getvalue()


def _say_the_same(carried: str, after: str) -> bool:
    """Lines may fit nowhere: `key: null`, say, is `key:` to ruamel.yaml, and what goes below it needs that line."""
    try:
        one, two = (plain_yaml(text, source="the site file") for text in (carried, after))
    except InputError:
        return False
    return json.dumps(one) == json.dumps(two)


def _carry(ours: list[_Line], base: list[str], theirs: list[str]) -> list[_Line]:
    """Bring what differs between `base` and `theirs` into `ours`, which says the same as `base` in other lines."""
    place = _places(base, [line.text for line in ours])
    result: list[_Line] = []
    done = 0
    for tag, low, high, new_low, new_high in _differences(base, theirs):
        if tag == "equal":
            continue
        first, last = low, high
        if tag == "insert":
            first = last = _before_what_follows(base, low, theirs[new_low])
        if tag == "delete":
            last = max(low + 1, _before_what_follows(base, high, base[low]))
        start, end = max(place[first], done), max(place[last], done)
        result += ours[done:start]
        for index, text in enumerate(theirs[new_low:new_high], start=start):
            like = ours[index] if index < end else result[-1] if result else ours[0]
            result.append(_Line(text, like.end))
        done = end
    result += ours[done:]
    usual = ours[0].end or "\n"
    return [line if line.end else _Line(line.text, usual) for line in result[:-1]] + result[-1:]


def _before_what_follows(lines: list[str], index: int, inner: str) -> int:
    """The place before the blank lines and outer comments above `index`: they belong to what comes after.

    `inner` is the line that is put there, or taken away. ruamel.yaml keeps such lines with what stands before them.
    """
    depth = len(inner) - len(inner.lstrip(" "))
    while index > 0:
        above = lines[index - 1]
        text = above.lstrip(" ")
        if text.strip() and not (text.startswith("#") and len(above) - len(text) < depth):
            break
        index -= 1
    return index


def _places(base: list[str], ours: list[str]) -> list[int]:
    """For each boundary between lines of `base` the boundary in `ours` that it stands for."""
    place = [0] * (len(base) + 1)
    for tag, low, high, own_low, own_high in _differences(base, ours):
        for index in range(low, high):
            inside = own_low + (index - low)
            place[index] = inside if tag == "equal" else min(inside, own_high)
    place[len(base)] = len(ours)
    return place


def _differences(one: list[str], two: list[str]) -> Iterable[tuple[str, int, int, int, int]]:
    """How the first lines become the second, as difflib says it.

    Each line is compared together with the line that it is below: `uplink:` of one switch is not that of another. That
    keeps the parts together, and the time in bounds, which difflib's grows with the square of equal lines.
    """
    numbers: dict[tuple[int, str], int] = {}
    return SequenceMatcher(None, _below(one, numbers), _below(two, numbers), autojunk=False).get_opcodes()


def _below(lines: list[str], numbers: dict[tuple[int, str], int]) -> list[tuple[int, str]]:
    """Each line with the number of the line that it is indented below; spaces inside that one do not count."""
    told: list[tuple[int, str]] = []
    above: list[tuple[int, int]] = [(-1, 0)]
    for line in lines:
        depth = len(line) - len(line.lstrip(" "))
        if line.strip():
            while above[-1][0] >= depth:
                above.pop()
        told.append((above[-1][1], line))
        if line.strip():
            number = numbers.setdefault((above[-1][1], " ".join(line.split())), len(numbers) + 1)
            above.append((depth, number))
    return told
