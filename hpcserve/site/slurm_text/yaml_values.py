"""YAML text -> values with their places, quick enough for a file of a MiB; scalars stay text."""

from dataclasses import dataclass, field
from typing import Any

import yaml

from hpcserve.errors import InputError
from hpcserve.site.mistakes import Mistakes, Place

__all__ = ["Mapping", "Scalar", "Sequence", "Value", "read_yaml"]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""PyYAML's parser in C, which its wheels have, is some 20 times as quick as the one in Python."""

_MOST_LEVELS = 50


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text, number or truth value as it is written, without its quotes."""

    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list."""

    place: Place
    items: list["Value"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mapping:
    """Pairs: for each key its place and its value."""

    place: Place
    pairs: dict[str, tuple[Place, "Value"]] = field(default_factory=dict)

    def get(self, key: str) -> "Value | None":
        """The value of a key; None where there is none."""
        pair = self.pairs.get(key)
        return pair[1] if pair else None


Value = Scalar | Sequence | Mapping


def read_yaml(text: str, mistakes: Mistakes) -> Value | None:
    """The first document; None where it is empty. Raises InputError where the text is not YAML."""
    try:
        return _Building(mistakes).document(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)
        found = " ".join((error.problem or "not YAML").split())
        mistakes.add(place, found, "YAML was wanted", "check indentation, quotes and colons here")
    except (yaml.YAMLError, UnicodeError):
        mistakes.add(
            Place(1, 1),
            "a character that YAML does not allow",
            "printable text was wanted",
            "save the file as UTF-8 without control characters",
        )
    mistakes.check()
    raise InputError(())


class _Building:
    """Puts a value together from PyYAML's events, without calling itself for each level."""

    def __init__(self, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self._open: list[tuple[Sequence | Mapping, list[tuple[str, Place]]]] = []
        self._root: Value | None = None

    def document(self, text: str) -> Value | None:
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.DocumentEndEvent):
                break
            mark = event.start_mark
            place = Place(1, 1) if mark is None else Place(mark.line + 1, mark.column + 1)
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(Scalar(place, str(event.value)))
            elif isinstance(event, yaml.SequenceStartEvent):
                self._enter(Sequence(place))
            elif isinstance(event, yaml.MappingStartEvent):
                self._enter(Mapping(place))
            elif isinstance(event, yaml.CollectionEndEvent):
                self._open.pop()
            elif isinstance(event, yaml.AliasEvent):
                self._mistakes.add(place, f"an alias `*{event.anchor}`", "plain YAML was wanted", "write it out")
                self._mistakes.check()
        return self._root

    def _scalar(self, value: Scalar) -> None:
        if self._open and isinstance(self._open[-1][0], Mapping) and not self._open[-1][1]:
            self._open[-1][1].append((value.text, value.place))
        else:
            self._put(value)

    def _enter(self, value: Sequence | Mapping) -> None:
        if len(self._open) >= _MOST_LEVELS:
            self._mistakes.add(
                value.place, f"more than {_MOST_LEVELS} levels", "less nesting was wanted", "remove some"
            )
            self._mistakes.check()
        if self._open and isinstance(self._open[-1][0], Mapping) and not self._open[-1][1]:
            self._mistakes.add(value.place, "a key that is not text", "a plain key was wanted", "write `key: value`")
            self._mistakes.check()
        self._put(value)
        self._open.append((value, []))

    def _put(self, value: Value) -> None:
        if not self._open:
            self._root = value
            return
        holder, keys = self._open[-1]
        if isinstance(holder, Sequence):
            holder.items.append(value)
            return
        key, place = keys.pop()
        if key in holder.pairs:
            first = holder.pairs[key][0].line
            self._mistakes.add(
                place,
                f"`{key}` a second time",
                f"each key once was wanted, it is already on line {first}",
                "remove one of the two",
            )
        else:
            holder.pairs[key] = (place, value)
