"""Who a pid is: pids are used again, a pid with its start time is not. What /proc says of this host's processes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ProcessStat", "is_running", "process_stats", "start_ticks", "stat_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """What /proc/PID/stat says of one process that is no zombie."""

    pid: int
    parent: int
    group: int
    session: int
    start_ticks: int
    """When it started, in clock ticks since boot."""


def stat_of(pid: int) -> ProcessStat | None:
    """The process of that pid; None where there is none, or only a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # proc(5), /proc/PID/stat: the fields from the third, the state, follow the name in parentheses; the 22nd is the
    # start time.
    state, parent, group, session, *rest = text.rpartition(")")[2].split()
    if state in {"Z", "X"}:
        return None
    return ProcessStat(pid=pid, parent=int(parent), group=int(group), session=int(session), start_ticks=int(rest[15]))


def process_stats() -> Iterator[ProcessStat]:
    """Every process of this host but for zombies; one that ends meanwhile may be left out."""
    for entry in Path("/proc").iterdir():
        found = stat_of(int(entry.name)) if entry.name.isdigit() else None
        if found is not None:
            yield found


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None where there is none, or only a zombie."""
    found = stat_of(pid)
    return None if found is None else found.start_ticks


def is_running(pid: int, ticks: int) -> bool:
    """Whether the very process that started at `ticks` still runs on this host."""
    return start_ticks(pid) == ticks
