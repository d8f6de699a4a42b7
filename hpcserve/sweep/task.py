"""What runs inside the job: each placement in turn. Called with plain text only, so that any Python can start it."""

import os
import signal
import threading
from pathlib import Path
from types import FrameType

from hpcserve.discovery import read_dir_record
from hpcserve.nouns import JobHandle
from hpcserve.scheduler import launcher_for
from hpcserve.site import expand_hosts
from hpcserve.sweep.grid import missing_points, points_of
from hpcserve.sweep.results import PlacementOrder, Results
from hpcserve.sweep.shared import service_of
from hpcserve.sweep.steps import own_allocation
from hpcserve.sweep.turn import take_turn

__all__ = ["end_leftovers", "measure_all"]

_TERMINATED = 143  # 128 + SIGTERM, as shells say it


def measure_all(folder: str) -> str:
    """Measure what `folder`/order.json asks for and is missing in `folder`/runs; returns the host it ran on.

    Run again, it finishes what is missing. TERM ends the service that is up, then this process.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminated)
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        # submitit's local executor hides all GPUs from jobs that ask it for none (submitit/local/local.py).
        del os.environ["CUDA_VISIBLE_DEVICES"]
    results = Results(folder=Path(folder))
    order = results.read_order()
    end_leftovers(results)
    granted = set(expand_hosts(own_allocation()[1])) if order.launcher == "slurm" else None
    for mine in order.placements:
        service = service_of(order.service, mine.placement)
        points = points_of(order.sweep, mine.placement, service=service, site=order.site)
        missing = missing_points(points, results.runs(), retry_invalid=order.retry_invalid)
        if missing:
            take_turn(order, _on_granted(mine, granted), missing, results)
    return os.uname().nodename


def _on_granted(mine: PlacementOrder, granted: set[str] | None) -> PlacementOrder:
    """The placement, or a reason in place of its plan where nodes of it were not granted."""
    if mine.plan is None or granted is None:
        return mine
    absent = sorted(set(mine.plan.nodes) - granted)
    if not absent:
        return mine
    reason = f"nodes of this placement were not granted: {', '.join(absent)}"
    return mine.model_copy(update={"plan": None, "reason": reason})


def end_leftovers(results: Results) -> None:
    """End services of this sweep on this host whose measuring process is gone: it was killed and could not."""
    for directory in sorted(results.jobs.iterdir()):
        handle = read_dir_record(directory, "job.json", JobHandle) if directory.is_dir() else None
        if handle is None or handle.launcher != "local":
            continue
        launcher = launcher_for("local")
        if launcher.state(handle).phase == "running":
            launcher.cancel(handle)


def _terminated(_number: int, _frame: FrameType | None) -> None:
    # Whole process groups are signalled more than once; the second must not stop the service's end.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(_TERMINATED)
