"""Who a pid is: pids are used again, a pid with its start time is not."""

from pathlib import Path

__all__ = ["is_running", "start_ticks"]

_STARTTIME_AFTER_NAME = 19
"""proc(5), /proc/PID/stat: field 22 is the start time in clock ticks since boot; fields from 3 follow the `)`."""

_STATE_AFTER_NAME = 0


def start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since boot; None where there is none, or only a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    if fields[_STATE_AFTER_NAME] in {"Z", "X"}:
        return None
    return int(fields[_STARTTIME_AFTER_NAME])


def is_running(pid: int, ticks: int) -> bool:
    """Whether the very process that started at `ticks` still runs on this host."""
    return start_ticks(pid) == ticks
