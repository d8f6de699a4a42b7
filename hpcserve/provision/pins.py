"""Read a lock file: one `name==version` a line, `#` comments. In: text. Out: pins, or every mistake with its place."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hpcserve.errors import InputError, Mistake

__all__ = ["Pin", "parse_pins", "pinned_version"]

# Names and versions as PEP 508 and PEP 440 write them, no extras, markers or ranges: pip has nothing to choose.
_PIN = re.compile(r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[0-9][A-Za-z0-9.!+_-]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One package at one version."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


def parse_pins(text: str, *, file: str) -> tuple[Pin, ...]:
    """Pins in the order of the file; raises InputError with every line that is no pin and every name pinned twice."""
    pins: dict[str, Pin] = {}
    mistakes: list[Mistake] = []
    for line_number, column, entry in _entries(text):
        match = _PIN.fullmatch(entry)
        if match is None:
            mistakes.append(_mistake(file, line_number, column, f"found {entry!r}", "write NAME==VERSION"))
            continue
        pin = Pin(name=match["name"], version=match["version"])
        key = _normalised(pin.name)
        if key in pins:
            mistakes.append(_mistake(file, line_number, column, f"{pin} after {pins[key]}", "keep one of the two"))
        pins.setdefault(key, pin)
    if mistakes:
        raise InputError(mistakes)
    return tuple(pins.values())


def pinned_version(pins: tuple[Pin, ...], name: str) -> str:
    """Version that `name` is pinned to; raises KeyError where it is not pinned."""
    return {_normalised(pin.name): pin.version for pin in pins}[_normalised(name)]


def _entries(text: str) -> Iterator[tuple[int, int, str]]:
    for line_number, line in enumerate(text.splitlines(), start=1):
        entry = line.partition("#")[0].strip()
        if entry:
            yield line_number, line.index(entry) + 1, entry


def _normalised(name: str) -> str:
    """`name` as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _mistake(file: str, line: int, column: int, found: str, remedy: str) -> Mistake:
    return Mistake(
        file=file, line=line, column=column, found=found, wanted="one package at one version was wanted", remedy=remedy
    )
