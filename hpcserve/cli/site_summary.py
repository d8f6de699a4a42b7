"""What `hpcserve site import --dry-run` tells of a file, in words."""

from collections.abc import Mapping
from typing import Any

__all__ = ["summary"]


def summary(file: str, kind: str | None, understood: Mapping[str, Any]) -> str:
    """What was understood of one file, for people: a line for each key, long ones cut."""
    lines = [f"{file}: {kind or 'not recognised'}"]
    for key, value in understood.items():
        if key in {"warn", "warnings"}:
            lines.extend(f"  warning: {warning}" for warning in value)
        else:
            lines.append(f"  {key}: {_short(value)}")
    return "\n".join(lines) + "\n"


def _short(value: Any) -> str:
    """A value in a line: a long list or mapping as its first items and how many there are."""
    most = 6
    if isinstance(value, Mapping):
        words = [f"{key} ({_short(below)})" if _is_plain(below) else str(key) for key, below in value.items()]
    elif isinstance(value, list):
        words = [
            f"[{_short(item)}]"
            if isinstance(item, list)
            else f"({_short(item)})"
            if isinstance(item, Mapping)
            else _short(item)
            for item in value
        ]
    else:
        return "unknown" if value is None else str(value)
    rest = f", ... ({len(words)} in all)" if len(words) > most else ""
    return ", ".join(words[:most]) + rest if words else "none"


def _is_plain(value: Any) -> bool:
    """Whether a value is short enough to stand behind its key: a mapping only where nothing is nested in it."""
    return not isinstance(value, Mapping) or not any(isinstance(one, Mapping | list) for one in value.values())
