"""What a path that somebody typed leads to, in words, before anything is read from it: a pipe would be waited for."""

import stat
from pathlib import Path

from hpcserve.errors import HpcserveError, NotFoundError, refused

__all__ = ["FILE", "FOLDER", "cannot_be_read", "what_is_there"]

FILE = "a file"
FOLDER = "a directory"

_KINDS = (
    (stat.S_ISREG, FILE),
    (stat.S_ISDIR, FOLDER),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)
_SHOWN = 100


def what_is_there(path: Path) -> str:
    """FILE, FOLDER, or what else; empty where there is nothing. Follows links, opens nothing.

    Raises HpcserveError where the file system does not tell, MissingToolError where it may not.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except ValueError:
        raise NotFoundError(f"{str(path)[:_SHOWN]!r}: no path can have that", remedy="check the path") from None
    except OSError as error:
        raise cannot_be_read(path, error) from None
    return next((words for is_kind, words in _KINDS if is_kind(mode)), "neither file nor directory")


def cannot_be_read(path: Path, error: OSError) -> HpcserveError:
    """Why the file system does not give a file that somebody named."""
    return refused(
        error,
        str(path)[:_SHOWN],
        remedy="a file that can be read was wanted; check the path and its permissions",
    )
