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

__all__ = ["BusyLimits", "CpuTimes", "cpu_times", "pressure", "quiet_share", "snapshot"]

NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]

_PRESSURE = Path("/proc/pressure/cpu")


class BusyLimits(Noun):
    """When a host is too busy to measure on.

    On a CPU-only cluster the engines themselves use every core, so the load during a run says nothing. What others do
    shows right before and right after it, while the service has no request: more than a quarter of all cores busy then,
    and still busy a few seconds later, is somebody else's work. During the run, what the hypervisor took away (steal)
    and how late the load generator sent its requests show it.
    """

    others_share: NonNegative = 0.25
    """Of all cores, while the service is idle."""
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

    def busy_share_since(self, earlier: "CpuTimes") -> float:
        """Share of all cores that did something, steal included."""
        total = self.total - earlier.total
        return 1 - (self.idle - earlier.idle) / total if total else 0.0

    def steal_share_since(self, earlier: "CpuTimes") -> float:
        """Share of all cores that the hypervisor gave to others."""
        total = self.total - earlier.total
        return (self.steal - earlier.steal) / total if total else 0.0


def cpu_times(stat: Path = Path("/proc/stat")) -> CpuTimes:
    """The first line of `/proc/stat`: user nice system idle iowait irq softirq steal (proc(5)); guest is in user."""
    fields = [int(field) for field in stat.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return CpuTimes(total=sum(fields), idle=fields[3] + fields[4], steal=fields[7])


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
