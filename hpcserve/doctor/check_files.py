"""Checks of the directories that a site names: there, writable, with room, and seen by all nodes in time."""

from collections.abc import Iterator

from hpcserve.doctor.evidence import Evidence, Wanted
from hpcserve.doctor.finding import Said, failure, fine, not_applicable, warning

__all__ = ["clock", "directories", "shared_directory", "space"]

_LEAST_BYTES = 64 * 2**20
"""Records, scripts and logs of one job stay below it by far."""

_FEW_BYTES = 2 * 2**30
_FEW_FILES = 10_000

_SLOW_S = 5.0
"""Heartbeats are taken for lost after 30 s; half a round trip of 5 s still leaves room for several of them."""

_SKEW_S = 2.0
"""Log lines of two nodes can no longer be put in order."""


def directories(seen: Evidence, _wanted: Wanted) -> Iterator[Said]:
    """Whether the directories of the site file are there and can be written where they must be."""
    bad = [disk for disk in seen.disks if disk.trouble]
    for disk in bad:
        yield failure(
            f"{disk.called} ({disk.path}): {disk.trouble}",
            why="jobs, models or caches that should be there are not: workers do not start here",
            remedy="mount it on this node, make room, or correct the site file",
        )
    if not bad:
        yield fine("the directories of the site file are there")


def space(seen: Evidence, _wanted: Wanted) -> Iterator[Said]:
    """Room on those file systems; a quota shows as a write that was refused."""
    short = False
    for disk in seen.disks:
        if disk.trouble:
            continue
        room = f"{disk.called} ({disk.path}): {disk.free_bytes / 1e9:.2f} GB free"
        if disk.free_bytes < _LEAST_BYTES:
            short = True
            yield failure(room, why="records and logs of jobs cannot be written", remedy="make room there")
        elif disk.free_bytes < _FEW_BYTES or (disk.free_files is not None and disk.free_files < _FEW_FILES):
            short = True
            files = "" if disk.free_files is None else f", {disk.free_files} files"
            yield warning(
                room + files, why="compilation caches and logs of a few jobs fill that", remedy="make room there"
            )
    if not short:
        yield fine("there is room")


def shared_directory(seen: Evidence, _wanted: Wanted) -> Iterator[Said]:
    """Whether what one node writes into the directory of jobs is seen by another, whole and soon."""
    shared = seen.shared
    if shared is None:
        yield not_applicable("only one host was looked at")
    elif shared.rename_trouble:
        yield failure(
            f"a file cannot be written and renamed in the directory of jobs: {shared.rename_trouble}",
            why="agents cannot report: no job starts",
            remedy="`paths.jobs` must be one directory, writable on every node",
        )
    elif shared.round_trip_s is None:
        yield failure(
            "the login node's answer in the directory of jobs was not seen",
            why="agents and `hpcserve status` would wait for one another",
            remedy="`paths.jobs` must be the same file system on every node",
        )
    elif shared.round_trip_s > _SLOW_S:
        yield warning(
            f"a file and its answer took {shared.round_trip_s:.0f} s between this node and the login node",
            why="workers appear, and dead ones disappear, that much later",
            remedy="put `paths.jobs` on a file system without long attribute caching (NFS: actimeo)",
        )
    else:
        yield fine("files in the directory of jobs are seen soon")


def clock(seen: Evidence, _wanted: Wanted) -> Iterator[Said]:
    """How far this node's clock is from the login node's."""
    if seen.shared is None or seen.shared.clock_ahead_s is None or seen.shared.round_trip_s is None:
        yield not_applicable("the clocks were not compared")
        return
    ahead = seen.shared.clock_ahead_s
    if abs(ahead) - seen.shared.round_trip_s / 2 > _SKEW_S:
        yield warning(
            f"its clock is {abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'} the login node's",
            why="hpcserve trusts no other node's clock, but logs cannot be put in order, and tokens of Slurm expire",
            remedy="see chrony or ntpd on that node",
        )
    else:
        yield fine("clocks agree")
