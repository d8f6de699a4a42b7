"""Home directories: what `~` and `~user` stand for, and where what the user keeps lies."""

from pathlib import Path

from hpcserve.errors import NotFoundError

__all__ = ["home_directory", "typed_path"]

_SHOWN = 100


def typed_path(typed: str | Path) -> Path:
    """The path that was written, `~` and `~user` expanded; raises NotFoundError for a home that is not known."""
    try:
        return Path(typed).expanduser()
    except RuntimeError:
        raise NotFoundError(
            f"{str(typed)[:_SHOWN]}: the home directory of that user is not known",
            remedy="write the whole path, or set HOME",
        ) from None


def home_directory() -> Path:
    """The user's own; raises NotFoundError where neither HOME nor the system's accounts say it."""
    return typed_path("~")
