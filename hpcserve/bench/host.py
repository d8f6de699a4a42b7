"""How busy this host is with things that are not the service."""

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

from pydantic import Field

from hpcserve.nouns import Noun

__all__ = ["BusyLimits", "CpuTimes", "cpu_times", "own_ticks", "pressure", "quiet_share", "snapshot"]

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_PRESSURE = Path("/proc/pressure/cpu")


class BusyLimits(Noun):
    """When a host is too busy to measure on.

    On a CPU-only cluster the engines themselves use every core. What others do shows right before and right after a
    run, while the service has no request: more than a quarter of all cores busy then, and still busy a few seconds
    later, is somebody else's work. During the run, the work of all cores less that of the service and of the load
    generator shows it, and so do what the hypervisor took away (steal) and how late requests were sent.
    """

    others_share: NonNegative = 0.25
    """Of all cores."""
    steal_share: NonNegative = 0.05
    dispatch_share: NonNegative = 0.05
    """95th percentile of the generator's delay, as a share of the TTFT limit: it is an error of that size in TTFT."""
    settle_s: NonNegative = 20.0
    """How long to wait for a quiet moment before the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuTimes:
    """Ticks of all cores since boot."""

    total: int
    idle: int
    steal: int

    def busy_since(self, earlier: "CpuTimes") -> int:
        """Ticks of all cores together that did something."""
        return (self.total - earlier.total) - (self.idle - earlier.idle)

    def busy_share_since(self, earlier: "CpuTimes") -> float:
        """Share of all cores that did something, steal included."""
        total = self.total - earlier.total
        return self.busy_since(earlier) / total if total else 0.0

    def steal_share_since(self, earlier: "CpuTimes") -> float:
        """Share of all cores that the hypervisor gave to others."""
        total = self.total - earlier.total
        return (self.steal - earlier.steal) / total if total else 0.0


def cpu_times(stat: Path = Path("/proc/stat")) -> CpuTimes:
    """The first line of `/proc/stat`: user nice system idle iowait irq softirq steal (proc(5)); guest is in user."""
    fields = [int(field) for field in stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return CpuTimes(total=sum(fields), idle=fields[3] + fields[4], steal=fields[7])


def own_ticks(job_directory: Path, proc: Path = Path("/proc")) -> int:
    """Ticks that the processes of a job on this host, and this process with what it ran, have used so far.

    A job's processes are those of every session in which one names the job in its environment (`HPCSERVE_JOB`): engines
    overwrite the environment of some of theirs. What ended meanwhile counts where its parent has waited for it.
    """
    mark = b"HPCSERVE_JOB=" + str(job_directory).encode()
    sessions: set[str] = set()
    used: dict[str, int] = {}
    for process in proc.iterdir():
        if not process.name.isdigit():
            continue
        try:
            # proc(5), after the name in parentheses: state ppid pgrp session ... utime stime cutime cstime
            fields = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
            if mark in (process / "environ").read_bytes().split(b"\0"):
                sessions.add(fields[3])
        except OSError:  # it ended, or it is somebody else's
            continue
        used[fields[3]] = used.get(fields[3], 0) + sum(map(int, fields[11:15]))
    times = os.times()
    own_s = times.user + times.system + times.children_user + times.children_system
    return sum(used[session] for session in sessions) + round(own_s * os.sysconf("SC_CLK_TCK"))


def quiet_share(limits: BusyLimits, *, window_s: float = 1.0, settle_s: float | None = None) -> float:
    """The busy share of a window in which the service is idle: the first quiet one, or the last when time is up."""
    end_s = time.monotonic() + (limits.settle_s if settle_s is None else settle_s)
    while True:
        before = cpu_times()
        time.sleep(window_s)
        share = cpu_times().busy_share_since(before)
        if share <= limits.others_share or time.monotonic() >= end_s:
            return share


def pressure(path: Path = _PRESSURE) -> str:
    """Linux' own word on waiting for CPU (PSI), its first line; `unavailable` where the kernel keeps none."""
    try:
        return path.read_text(encoding="ascii").splitlines()[0]
    except (OSError, IndexError):
        return "unavailable"


def snapshot() -> dict[str, str]:
    """What a reader needs to judge numbers that were taken here."""
    return {
        "host": platform.node(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "hpcserve": version("hpcserve"),
        "cpus": str(os.cpu_count()),
        "load_average": " ".join(f"{value:.2f}" for value in os.getloadavg()),
        "slurm_job": os.environ.get("SLURM_JOB_ID", "none"),
        "cpu_pressure_before": pressure(),
    }
