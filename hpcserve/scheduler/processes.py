"""Processes of one local job: found by descent and by the mark in their environment, never by name."""

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpcserve.discovery import is_running, start_ticks

__all__ = ["Process", "alive", "family", "marked", "send"]

_PARENT_AFTER_NAME = 1  # proc(5), /proc/PID/stat: field 4, where fields from 3 follow the `)`


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, which a later one with the same pid is not."""

    pid: int
    ticks: int
    """Start time in clock ticks since boot."""


def family(pid: int) -> frozenset[Process]:
    """The process and everything that descends from it now."""
    children: dict[int, list[int]] = {}
    for other in _pids():
        parent = _parent(other)
        if parent is not None:
            children.setdefault(parent, []).append(other)
    found: set[Process] = set()
    queue = [pid]
    while queue:
        member = queue.pop()
        queue += children.get(member, [])
        ticks = start_ticks(member)
        if ticks is not None:
            found.add(Process(pid=member, ticks=ticks))
    return frozenset(found)


def marked(variable: str, value: str) -> frozenset[Process]:
    """Processes whose environment, as they were started, says `variable=value`."""
    mark = f"{variable}={value}".encode()
    found: set[Process] = set()
    for pid in _pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue  # ended meanwhile, or somebody else's
        ticks = start_ticks(pid)
        if mark in environment.split(b"\0") and ticks is not None:
            found.add(Process(pid=pid, ticks=ticks))
    return frozenset(found)


def alive(processes: Iterable[Process]) -> frozenset[Process]:
    """Those that still run."""
    return frozenset(process for process in processes if is_running(process.pid, process.ticks))


def send(processes: Iterable[Process], number: signal.Signals) -> None:
    """Signal those that still run; one that ends meanwhile is no failure."""
    for process in alive(processes):
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            continue


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _parent(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text.rpartition(")")[2].split()[_PARENT_AFTER_NAME])
