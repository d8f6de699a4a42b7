"""Which job directory is meant by an id, a name or a path."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpcserve.discovery import read_dir_record, typed_path
from hpcserve.errors import NotFoundError
from hpcserve.nouns import JobHandle
from hpcserve.wire import UnreadableRecordError

__all__ = ["FoundJob", "find_job", "list_jobs"]

_NUMBERED = re.compile(r"^(?P<service>.+)-(?P<number>\d+)$")
HANDLE_FILE = "job.json"
_PLAN_FILE = "plan.asked.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """One job directory; `handle` is None for a job that was rendered and not submitted."""

    directory: Path
    handle: JobHandle | None
    trouble: str = ""
    """Why `job.json` is there and cannot be read."""

    def submitted(self) -> JobHandle:
        """The handle; raises NotFoundError for a job that was not submitted or whose record cannot be read."""
        if self.handle is not None:
            return self.handle
        if self.trouble:
            raise NotFoundError(f"{self.directory / HANDLE_FILE} {self.trouble}", remedy="see the job directory")
        raise NotFoundError(
            f"{self.directory.name} was rendered and not submitted", remedy="use `hpcserve submit` to submit a service"
        )

    @property
    def service(self) -> str:
        """Name of the service: the directory's name without its number."""
        match = _NUMBERED.match(self.directory.name)
        return match["service"] if match else self.directory.name

    @property
    def number(self) -> int:
        """The number behind the service's name; 0 where there is none."""
        match = _NUMBERED.match(self.directory.name)
        return int(match["number"]) if match else 0


def list_jobs(roots: Iterable[Path]) -> tuple[FoundJob, ...]:
    """Every job directory below the roots, by service and number; roots that do not exist hold none.

    Where several people share a root, the others' directories (mode 0700) are not ours to look into: they are left out.
    """
    found = [
        _found(directory)
        for root in dict.fromkeys(roots)
        if os.access(root, os.R_OK | os.X_OK)
        for directory in root.iterdir()
        if not directory.name.startswith(".") and _is_job(directory)
    ]
    return tuple(sorted(found, key=lambda job: (job.service, job.number)))


def _is_job(directory: Path) -> bool:
    return os.access(directory / _PLAN_FILE, os.R_OK)


def find_job(wanted: str, roots: Iterable[Path]) -> FoundJob:
    """The job of that directory, id, name (`NAME-N`) or service name (its newest job); raises NotFoundError."""
    path = typed_path(wanted)
    if "/" in wanted or wanted in {".", ".."}:
        if _is_job(path):
            return _found(path.resolve())
        raise NotFoundError(f"{wanted} is no job directory", remedy="name one that `hpcserve submit` printed")
    roots = tuple(roots)
    jobs = list_jobs(roots)
    for matches in (
        [job for job in jobs if job.directory.name == wanted],
        [job for job in jobs if job.handle is not None and job.handle.id.partition(";")[0] == wanted],
        [job for job in jobs if job.service == wanted],
    ):
        if matches:
            return matches[-1]
    places = ", ".join(str(root) for root in roots)
    raise NotFoundError(
        f"no job `{wanted}` in {places}",
        remedy="`hpcserve status` lists all; of a site that is a file without a name, set HPCSERVE_SITE to it;"
        " --jobs-dir looks elsewhere",
    )


def _found(directory: Path) -> FoundJob:
    try:
        return FoundJob(directory=directory, handle=read_dir_record(directory, HANDLE_FILE, JobHandle))
    except (OSError, UnreadableRecordError) as error:
        return FoundJob(directory=directory, handle=None, trouble=f"cannot be read: {error}")
