"""YAML text -> plain data, with the place of every key and value.

Scalars follow the YAML 1.2 core schema, so that the traps of 1.1 cannot bite: `no`, `on`, `1:30:00`, `0123` and `1e3`
stay text; only `true`/`false`, `null`/`~`/empty, decimal integers without leading zeros and decimal fractions do not.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from hpcserve.errors import InputError, Mistake

__all__ = ["Located", "Place", "load"]

Plain = None | bool | int | float | str | list[Any] | dict[str, Any]
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """Line and column in the file, from 1."""

    line: int
    column: int


@dataclass(slots=True)
class Located:
    """Plain data and where each part of it stands."""

    data: Plain = None
    values: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    mistakes: list[tuple[Place, str, str, str]] = field(default_factory=list)

    def key_place(self, path: Path) -> Place:
        """Where the key at `path` stands (the value's place for list items)."""
        return self.keys.get(path) or self.value_place(path)

    def value_place(self, path: Path) -> Place:
        """Where the value at `path` starts; of its nearest ancestor where it does not exist."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, Place(line=1, column=1))


_MOST_LEVELS = 50
_MOST_VALUES = 200_000
"""Nodes of a cluster are written as host lists: a site of any size has some thousand values."""

_RESOLVERS = (
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")),
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$")),
    ("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]{0,99})$")),
    ("tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+]?[0-9]+)?$")),
)


_IMPLIED_TAGS = frozenset(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge", "seq", "map")
)
"""What PyYAML gives to nodes that carry no tag of their own."""


def _scalar(node: yaml.ScalarNode) -> Plain:
    if node.style is not None:
        return str(node.value)
    for tag, pattern in _RESOLVERS:
        if pattern.match(node.value):
            if tag.endswith("bool"):
                return str(node.value).lower() == "true"
            if tag.endswith("null"):
                return None
            return int(node.value) if tag.endswith("int") else float(node.value)
    return str(node.value)


def load(text: str, *, source: str) -> Located:
    """Parse one YAML document; raises InputError where the text is not YAML at all, or larger than any sane file."""
    try:
        _check_depth(text)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = _mark_place(mark)
        problem = " ".join((error.problem or "not YAML").split())
        found = f"{error.context}, {problem}" if problem.startswith("but ") else problem
        raise _refusal(source, place, found, "YAML was wanted", "check indentation, quotes and colons here") from None
    except yaml.YAMLError as error:
        line, column = _position(text, getattr(error, "position", 0))
        raise _refusal(
            source,
            Place(line=line, column=column),
            "a character that YAML does not allow",
            "printable text was wanted",
            "save the file as UTF-8 without control characters",
        ) from None
    except _TooLargeError as error:
        raise _refusal(source, error.place, error.found, error.wanted, "split it, or remove aliases") from None
    located = Located()
    if node is not None:
        try:
            located.data = _build(node, (), located, frozenset())
        except _TooLargeError as error:
            raise _refusal(source, error.place, error.found, error.wanted, "split it, or remove aliases") from None
    return located


def _refusal(source: str, place: Place, found: str, wanted: str, remedy: str) -> InputError:
    return InputError(
        [Mistake(file=source, line=place.line, column=place.column, found=found, wanted=wanted, remedy=remedy)]
    )


class _TooLargeError(Exception):
    """Deeper nested or with more values than any file that people write."""

    def __init__(self, place: Place, found: str, wanted: str) -> None:
        super().__init__(found)
        self.place = place
        self.found = found
        self.wanted = wanted


def _check_depth(text: str) -> None:
    """Look at the nesting before it is composed: PyYAML's composer calls itself for every level."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MOST_LEVELS:
            raise _TooLargeError(
                _mark_place(event.start_mark), f"more than {_MOST_LEVELS} levels", "less nesting was wanted"
            )


def _position(text: str, index: int) -> tuple[int, int]:
    before = text[:index]
    return before.count("\n") + 1, index - (before.rfind("\n") + 1) + 1


def _place(node: yaml.Node) -> Place:
    return _mark_place(node.start_mark)


def _mark_place(mark: Any) -> Place:
    """PyYAML's mark, of either of its parsers, counts from 0; None where it knows no place."""
    return Place(line=1, column=1) if mark is None else Place(line=mark.line + 1, column=mark.column + 1)


def _build(node: yaml.Node, path: Path, located: Located, above: frozenset[int]) -> Plain:
    located.values[path] = _place(node)
    if len(located.values) > _MOST_VALUES:
        raise _TooLargeError(_place(node), f"more than {_MOST_VALUES} values, aliases counted", "fewer were wanted")
    if id(node) in above:
        located.mistakes.append(
            (
                _place(node),
                "an anchor that contains itself",
                "a finite document was wanted",
                "remove the alias",
            )
        )
        return None
    above |= {id(node)}
    if node.tag not in _IMPLIED_TAGS:
        located.mistakes.append((_place(node), f"the tag `{node.tag}`", "plain YAML was wanted", "remove the tag"))
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, index), located, above) for index, item in enumerate(node.value)]
    assert isinstance(node, yaml.MappingNode)  # noqa: S101 - the three kinds of node that PyYAML has
    return dict(_pairs(node, path, located, above))


def _pairs(node: yaml.MappingNode, path: Path, located: Located, above: frozenset[int]) -> Iterator[tuple[str, Plain]]:
    seen: dict[str, Place] = {}
    for key_node, value_node in node.value:
        place = _place(key_node)
        if not isinstance(key_node, yaml.ScalarNode):
            located.mistakes.append((place, "a key that is not text", "a plain key was wanted", "write `key: value`"))
            continue
        key = str(key_node.value)
        if key in seen:
            located.mistakes.append(
                (
                    place,
                    f"`{key}` a second time",
                    f"each key once was wanted, it is already on line {seen[key].line}",
                    "remove one of the two",
                )
            )
            continue
        seen[key] = place
        located.keys[*path, key] = place
        yield key, _build(value_node, (*path, key), located, above)
