"""`Kind`: one form of text that a cluster's tools print or read, and how it is understood."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hpcserve.errors import Mistake

__all__ = ["Kind"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T]):
    """One kind of text: how it is known, read, and told in plain data."""

    name: str
    """What `--kind` takes: `topology.conf`, `ibnetdiscover`."""
    about: str
    """Which command prints it, or which file it is; one line for `--help`."""
    looks_like: Callable[[str], bool]
    """Whether a text is of this kind. Of two kinds that both say yes, the one that stands first is taken."""
    parse: Callable[[str, str], T]
    """(text, name of its source) -> what it says; raises InputError with every mistake."""
    understood: Callable[[T], Mapping[str, Any]]
    """What was understood as plain data, for people and scripts (`--dry-run --json`)."""
    mistakes: Callable[[T], tuple[Mistake, ...]] = lambda _: ()
    """Mistakes that do not keep the rest from being understood: of a list whose lines stand for themselves."""
