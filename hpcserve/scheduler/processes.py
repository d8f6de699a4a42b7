"""Processes of one local job: found by descent and by the mark in their environment, never by name."""

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hpcserve.discovery import is_running, process_stats

__all__ = ["Process", "alive", "family", "marked", "send"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process, which a later one with the same pid is not."""

    pid: int
    ticks: int
    """Start time in clock ticks since boot."""


def family(pid: int) -> frozenset[Process]:
    """The process and everything that descends from it now."""
    every = {found.pid: found for found in process_stats()}
    children: dict[int, list[int]] = {}
    for found in every.values():
        children.setdefault(found.parent, []).append(found.pid)
    members: set[Process] = set()
    queue = [pid]
    while queue:
        member = queue.pop()
        queue += children.get(member, [])
        if member in every:
            members.add(Process(pid=member, ticks=every[member].start_ticks))
    return frozenset(members)


def marked(variable: str, value: str) -> frozenset[Process]:
    """Processes whose environment, as they were started, says `variable=value`."""
    mark = f"{variable}={value}".encode()
    members: set[Process] = set()
    for found in process_stats():
        try:
            environment = Path(f"/proc/{found.pid}/environ").read_bytes()
        except OSError:
            continue  # ended meanwhile, or somebody else's
        if mark in environment.split(b"\0"):
            members.add(Process(pid=found.pid, ticks=found.start_ticks))
    return frozenset(members)


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
