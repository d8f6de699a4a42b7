"""Host lists in one text, expanded with one limit for the whole of it."""

import re

from hpcserve.site.hostlist import MOST_HOSTS, HostListError, expand_hosts
from hpcserve.site.mistakes import Mistakes, Place

__all__ = ["Names"]

_MOST_NAMES = 4 * MOST_HOSTS
"""Host names of one text: each node of the largest cluster in four lists that differ, as in a tree of four tiers."""

_MOST_USES = 32 * MOST_HOSTS
"""The same, equal lists counted each time: they cost little until they are printed."""


_PLAIN = re.compile(r"[^\s,\[\]]+")
"""One name, as most are: there is nothing to expand."""


class Names:
    """Expands the host lists of one text; equal ones once."""

    def __init__(self, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self._known: dict[str, tuple[str, ...]] = {}
        self._count = 0
        self._uses = 0

    def expand(self, expression: str, place: Place) -> tuple[str, ...]:
        """The names of a host list; of none of them, and a mistake, where it is not one.

        Raises InputError at once where the text as a whole stands for too many names.
        """
        known = self._known.get(expression)
        if known is None:
            try:
                known = (expression,) if _PLAIN.fullmatch(expression) else expand_hosts(expression)
            except HostListError as error:
                self._mistakes.add(place, error.message, "a Slurm host list was wanted", error.remedy)
                known = ()
            self._known[expression] = known
            self._count += len(known)
        self.spend(len(known), place)
        return known

    def spend(self, count: int, place: Place) -> None:
        """Count further uses of names; raises InputError at once where the text stands for too many."""
        self._uses += count
        if self._count > _MOST_NAMES or self._uses > _MOST_USES:
            self._mistakes.add(
                place,
                f"more than {_MOST_NAMES if self._count > _MOST_NAMES else _MOST_USES} host names up to here",
                "a text about one cluster was wanted",
                "correct the ranges of its host lists, or split the text",
            )
            self._mistakes.check()
