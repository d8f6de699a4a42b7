"""Where hpcserve keeps what can be made again."""

from collections.abc import Mapping
from pathlib import Path

from hpcserve.discovery import home_directory

__all__ = ["cache_directory"]


def cache_directory(environment: Mapping[str, str]) -> Path:
    """`hpcserve` below XDG_CACHE_HOME, or below ~/.cache where that is unset, empty or relative.

    The XDG base directory specification asks for relative paths to be ignored.
    """
    named = Path(environment.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else home_directory() / ".cache") / "hpcserve"
