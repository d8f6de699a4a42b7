"""Files that hold what a cluster's tools printed: which they are, and their text."""

import sys
from collections.abc import Iterable
from pathlib import Path

from hpcserve.errors import InputError, Mistake, NotFoundError

__all__ = ["files_of", "text_of"]

_MOST_BYTES = 256 * 1024 * 1024
"""Of one file: what `scontrol show node --json` prints for ten thousand nodes is a tenth of it."""


def files_of(named: Iterable[str]) -> tuple[str, ...]:
    """The files that were named, and those in folders that were, in the order of their paths; hidden ones are left out.

    Raises NotFoundError for a folder without files.
    """
    found: list[str] = []
    for name in named:
        path = Path(name)
        if not path.is_dir():
            found.append(name)
            continue
        inside = [
            one
            for one in sorted(path.rglob("*"))
            if one.is_file() and not any(part.startswith(".") for part in one.relative_to(path).parts)
        ]
        if not inside:
            raise NotFoundError(f"{name} has no file in it", remedy="name a file that holds what a tool printed")
        found += map(str, inside)
    return tuple(found)


def text_of(file: str) -> str:
    """A file whole; bytes that are no UTF-8 (in comments, reasons) are replaced, they are no part of any name."""
    if file == "-":
        data = sys.stdin.buffer.read(_MOST_BYTES + 1)
    else:
        path = Path(file)
        if not path.is_file():
            raise NotFoundError(f"{file} is no file", remedy="name a file that holds what a tool printed")
        with path.open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise InputError(
            [
                Mistake(
                    file=file,
                    line=1,
                    column=1,
                    found=f"more than {_MOST_BYTES} bytes",
                    wanted="what a tool printed was wanted",
                    remedy="check that this is the right file",
                )
            ]
        )
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n")
