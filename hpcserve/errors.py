"""Every error a user can meet.

    HpcserveError                 exit 1   something hpcserve was asked to do failed
    ├── InputError                exit 2   what the user wrote is wrong: every mistake with file:line:column
    ├── NotFoundError             exit 3   a job, site, model or file that was named does not exist
    ├── PlacementError            exit 4   the request cannot be placed; names the limit that binds
    ├── MissingToolError          exit 5   a program, package or permission that is needed is not there
    ├── SchedulerError            exit 6   Slurm (or the local launcher) refused or failed
    ├── ServiceError              exit 7   the service ran and failed: a worker died, never became ready
    ├── TimeoutExpiredError       exit 8   something did not happen in the time given for it
    └── UnverifiedError           exit 9   it ran, but the proof that it worked is missing; no success is reported

Exit 0 is success that was verified; 130 is Ctrl-C after cleaning up.
"""

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "HpcserveError",
    "InputError",
    "MissingToolError",
    "Mistake",
    "NotFoundError",
    "PlacementError",
    "SchedulerError",
    "ServiceError",
    "TimeoutExpiredError",
    "UnverifiedError",
    "refused",
]

_NOT_PERMITTED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class HpcserveError(Exception):
    """Root of all errors shown to users without a traceback: what happened, and what to do about it.

    `message` says what was found; `remedy` what to do (may be empty where the message says it all).
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mistake:
    """One mistake in a file: place, what was found, what was wanted, what to do. Lines and columns count from 1."""

    file: str
    line: int
    column: int
    found: str
    wanted: str
    remedy: str

    def __str__(self) -> str:
        """One line, whatever was found: line ends and control characters are escaped, no terminal obeys them."""
        line = f"{self.file}:{self.line}:{self.column}: {self.found}; {self.wanted}; {self.remedy}"
        return "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)


class InputError(HpcserveError):
    """What the user wrote is wrong; carries every mistake that was found, in file order."""

    exit_code = 2

    def __init__(self, mistakes: Iterable[Mistake]) -> None:
        self.mistakes = tuple(sorted(mistakes))
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class NotFoundError(HpcserveError):
    """A job, site, model or file that was named does not exist."""

    exit_code = 3


class PlacementError(HpcserveError):
    """The request cannot be placed; the message names the limit that binds, the remedy what would lift it."""

    exit_code = 4


class MissingToolError(HpcserveError):
    """A program, package or permission that is needed is not there."""

    exit_code = 5


class SchedulerError(HpcserveError):
    """Slurm or the local launcher refused or failed."""

    exit_code = 6


class ServiceError(HpcserveError):
    """The service ran and failed."""

    exit_code = 7


class TimeoutExpiredError(HpcserveError):
    """Something did not happen in the time that was given for it."""

    exit_code = 8


class UnverifiedError(HpcserveError):
    """It ran, but the proof that it worked is missing."""

    exit_code = 9


def refused(error: OSError, what: str, *, remedy: str) -> HpcserveError:
    """What the operating system refused, as an error: a MissingToolError where a permission is missing."""
    kind = MissingToolError if error.errno in _NOT_PERMITTED else HpcserveError
    return kind(f"{what}: {error.strerror or error}", remedy=remedy)
