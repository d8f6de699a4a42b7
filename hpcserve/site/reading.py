"""Plain data that may be wrong in any way, read only where it is what it should be; the schema reports the rest."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hpcserve.site.hostlist import HostListError, expand_hosts
from hpcserve.wire import Complaint

__all__ = ["Path", "at", "first_of", "hosts_at", "items_of", "nearest", "number_at", "pairs_of", "repeated", "text_at"]

Path = tuple[str | int, ...]


def at(raw: Any, *path: str | int) -> Any:
    """The value at a path; None where there is none."""
    for step in path:
        if isinstance(raw, dict) and isinstance(step, str):
            raw = raw.get(step)
        elif isinstance(raw, list) and isinstance(step, int) and 0 <= step < len(raw):
            raw = raw[step]
        else:
            return None
    return raw


def text_at(raw: Any, *path: str | int) -> str | None:
    """The text at a path; None where there is none."""
    value = at(raw, *path)
    return value if isinstance(value, str) else None


def number_at(raw: Any, *path: str | int) -> int | None:
    """The whole number at a path; None where there is none."""
    value = at(raw, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def items_of(raw: Any, *path: str | int) -> list[tuple[int, Any]]:
    """The items of the list at a path with their indexes; nothing where there is none."""
    value = at(raw, *path)
    return list(enumerate(value)) if isinstance(value, list) else []


def pairs_of(raw: Any, *path: str | int) -> list[tuple[str, Any]]:
    """The pairs of the mapping at a path; nothing where there is none."""
    value = at(raw, *path)
    return list(value.items()) if isinstance(value, dict) else []


def hosts_at(raw: Any, path: Path, complaints: list[Complaint]) -> tuple[str, ...]:
    """The names of the host list at a path; one that cannot be read adds to `complaints` and names nothing."""
    expression = text_at(raw, *path)
    if expression is None:
        return ()
    try:
        return expand_hosts(expression)
    except HostListError as error:
        complaints.append(
            Complaint(path=path, found=error.message, wanted="a Slurm host list was wanted", remedy=error.remedy)
        )
        return ()


def nearest(word: str, known: Iterable[str], *, none: str) -> str:
    """What to do about an unknown name: the nearest known one, or all that are known, or `none` if there are none."""
    names = sorted(set(known))
    if not names:
        return none
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else f"known: {_shortened(names)}"


def first_of(names: Sequence[str]) -> str:
    """The first name, and how many more there are: a node list of thousands is one mistake, not thousands."""
    return f"`{names[0]}`" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _shortened(names: list[str]) -> str:
    most = 12
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def repeated(names: Iterable[str]) -> Iterator[str]:
    """Each name that comes more than once, once."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
    return (name for name, count in seen.items() if count > 1)
