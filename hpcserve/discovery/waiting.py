"""Awaiting records that other nodes will write."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

from hpcserve.discovery.files import DISK, FileSystem
from hpcserve.discovery.records import read_records
from hpcserve.errors import TimeoutExpiredError
from hpcserve.nouns import Noun

__all__ = ["VISIBILITY_S", "await_records"]

N = TypeVar("N", bound=Noun)

VISIBILITY_S = 60.0
"""nfs(5): `acdirmax` is 60 s by default: a listing may be that old, so no wait for a first record may be shorter."""


async def await_records(
    job_directory: Path,
    folder: str,
    names: Iterable[str],
    kind: type[N],
    *,
    deadline_s: float,
    accept: Callable[[N], bool] = lambda _: True,
    excused: Callable[[], Iterable[str]] = tuple,
    poll_s: float = 0.5,
    files: FileSystem = DISK,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> dict[str, N]:
    """The records `names` of `job_directory/folder`, by name, once a listing shows them all and `accept` takes each.

    Of names that `excused` gives, asked anew at each look, none is awaited; what it raises ends the wait.

    Raises TimeoutExpiredError after `deadline_s` (at least 60, else ValueError), naming what is missing and what could
    not be read.
    """
    if deadline_s < VISIBILITY_S:
        raise ValueError(f"a wait of {deadline_s} s; at least {VISIBILITY_S} s is wanted (NFS caches)")
    wanted = tuple(names)
    end_s = monotonic() + deadline_s
    while True:
        reasons: dict[str, str] = {}
        found: dict[str, N] = {}
        try:
            listing = read_records(job_directory, folder, kind, files=files)
        except OSError as error:
            reasons = dict.fromkeys(wanted, f"{folder} cannot be listed: {os.strerror(error.errno or 0)}")
        else:
            found = {name: listing.records[name] for name in wanted if name in listing.records}
            reasons = listing.unreadable
        taken = {name: record for name, record in found.items() if accept(record)}
        spared = set(await asyncio.to_thread(excused))
        missing = [name for name in wanted if name not in taken and name not in spared]
        if not missing:
            return taken
        if monotonic() >= end_s:
            told = ", ".join(f"{name} ({reasons[name]})" if name in reasons else name for name in missing)
            raise TimeoutExpiredError(
                f"{folder}: nothing from {told} after {deadline_s:.0f} s",
                remedy=f"see logs/ for {'that node' if len(missing) == 1 else 'those nodes'}",
            )
        await sleep(poll_s)
