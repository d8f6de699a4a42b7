"""Mistakes of one text, gathered until all are known."""

from typing import NamedTuple

from hpcserve.errors import InputError, Mistake

__all__ = ["Mistakes", "Place"]

_MOST = 100
"""A text with more is not of the kind that it was taken for: the rest would only repeat that."""

_LONGEST = 300
"""Characters of each part of a mistake: about three lines of a terminal."""


class Place(NamedTuple):
    """Where something stands in a text: line and column, from 1."""

    line: int
    column: int


class Mistakes:
    """What is wrong with one text; `check` raises it all at once."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._found: list[Mistake] = []

    def add(self, place: Place | None, found: str, wanted: str, remedy: str) -> None:
        """Note one, at the start of the text where no place is to blame.

        Raises InputError at once where there are too many to go on.
        """
        line, column = place or (1, 1)
        self._found.append(
            Mistake(
                file=self.source,
                line=line,
                column=column,
                found=_shown(found),
                wanted=_shown(wanted),
                remedy=_shown(remedy),
            )
        )
        if len(self._found) >= _MOST:
            raise self.error()

    @property
    def found(self) -> tuple[Mistake, ...]:
        """Those that were noted so far."""
        return tuple(self._found)

    def error(self) -> InputError:
        """The mistakes as an error to raise."""
        return InputError(self._found)

    def check(self) -> None:
        """Raise InputError with every mistake; return where there is none."""
        if self._found:
            raise self.error()


def _shown(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
