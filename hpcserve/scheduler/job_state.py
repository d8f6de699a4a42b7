"""Where a job is, from its user's side: the scheduler's word, the workers' records and what the router proved."""

import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hpcserve.discovery import log_tail, read_dir_record, read_records
from hpcserve.errors import UnverifiedError
from hpcserve.nouns import (
    JobFailure,
    JobHandle,
    JobPhase,
    JobState,
    NodeRefusal,
    Noun,
    Plan,
    RouterAddress,
    RouterState,
    WorkerState,
)
from hpcserve.scheduler.launcher import Launcher, SchedulerState
from hpcserve.scheduler.slurm_text import stuck_step
from hpcserve.site import load_service
from hpcserve.wire import UnreadableRecordError

__all__ = ["job_state", "router_answers"]

N = TypeVar("N", bound=Noun)

_ANSWER_S = 3.0
"""A router that is alive answers /health at once; a status that hangs helps nobody."""
_HTTP_OK = 200
_ROOM_BYTES = 2**20
"""The records of a job are some KiB each; the doctor asks for as much."""

# Sites set http_proxy for the outside world; a router on a node of the cluster must not be asked through it.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def job_state(
    directory: Path,
    handle: JobHandle,
    *,
    launcher: Launcher,
    answers: Callable[[str], bool],
) -> JobState:
    """What `hpcserve status` says of a job.

    Ready only where `router.state.json` says that the workers and pairs were proved *and* the router answers now.
    Raises UnverifiedError where a record of the job cannot be read: a guess would be a lie.
    """
    scheduler = launcher.state(handle)
    workers = _workers(directory)
    failure = _record(directory, "failed.json", JobFailure)
    address = _record(directory, "router.json", RouterAddress)
    proved = _record(directory, "router.state.json", RouterState)
    phase, reason = _phase(
        scheduler=scheduler,
        failure=failure,
        workers=workers,
        proved=proved,
        answers=address is not None and scheduler.phase in {"running", "unknown"} and answers(address.url),
        stuck=stuck_step(log_tail(directory / "logs" / "slurm.out")),
    )
    if phase in {JobPhase.STARTING, JobPhase.DEGRADED}:
        reason = "; ".join(filter(None, (_no_room(directory), reason)))
    if scheduler.phase in {"ended", "failed"}:
        workers = tuple(_ended(worker) for worker in workers)
    serving = phase in {JobPhase.READY, JobPhase.DEGRADED, JobPhase.STARTING}
    return JobState(
        handle=handle,
        phase=phase,
        scheduler_state=scheduler.word,
        reason=reason,
        url=address.url if address is not None and serving else None,
        workers=workers,
        refused=_refused(directory),
        kv_doubts=proved.kv_doubts if proved is not None and serving else (),
        simulated=_simulated(directory),
    )


def router_answers(url: str) -> bool:
    """Whether GET /health of the router says 200 now."""
    try:
        with _OPENER.open(f"{url}/health", timeout=_ANSWER_S) as response:
            return bool(response.status == _HTTP_OK)
    except (urllib.error.URLError, http.client.HTTPException, OSError):
        return False


def _phase(
    *,
    scheduler: SchedulerState,
    failure: JobFailure | None,
    workers: tuple[WorkerState, ...],
    proved: RouterState | None,
    answers: bool,
    stuck: str | None,
) -> tuple[JobPhase, str]:
    """Phase and reason; what the job itself says of its failure comes before all, then the scheduler."""
    if failure is not None:
        return JobPhase.FAILED, f"{failure.where}: {failure.reason}"
    match scheduler.phase:
        case "pending":
            return JobPhase.PENDING, scheduler.reason
        case "failed":
            return JobPhase.FAILED, scheduler.reason or _first_detail(workers) or f"Slurm says {scheduler.word}"
        case "ended":
            return JobPhase.ENDED, scheduler.reason
    phase, reason = _serving(workers=workers, proved=proved, answers=answers, stuck=stuck)
    if scheduler.phase == "unknown" and phase != JobPhase.READY:
        return JobPhase.UNKNOWN, scheduler.reason
    return phase, reason


def _serving(
    *, workers: tuple[WorkerState, ...], proved: RouterState | None, answers: bool, stuck: str | None
) -> tuple[JobPhase, str]:
    """Of a job that runs: what its router proved, and whether it answers."""
    missing = ", ".join(f"{worker.id}: {worker.phase}" for worker in workers if worker.phase != "ready")
    if proved is None:
        return JobPhase.STARTING, stuck or missing or "the agents have not reported yet"
    if not proved.ready:
        return JobPhase.STARTING, ", ".join(proved.waiting_for) or missing
    if not answers:
        return JobPhase.DEGRADED, "the router does not answer"
    # A lost node's agent cannot say that its workers are gone; the router can.
    lost = missing or ", ".join(proved.waiting_for)
    return (JobPhase.DEGRADED, lost) if lost else (JobPhase.READY, "")


def _workers(directory: Path) -> tuple[WorkerState, ...]:
    """Every planned worker: what its agent says, or that nobody has said anything; then any that only agents know."""
    try:
        listing = read_records(directory, "workers", WorkerState)
    except OSError as error:
        raise _unreadable(directory / "workers", error) from None
    told = {name.removesuffix(".state"): state for name, state in listing.records.items()}
    plan = _record(directory, "plan.json", Plan) or _record(directory, "plan.asked.json", Plan)
    planned = plan.workers if plan is not None else ()
    states = [
        told.get(worker.id)
        or WorkerState(id=worker.id, role=worker.role.value, node=worker.node, phase="waiting", detail="not reported")
        for worker in planned
    ]
    known = {worker.id for worker in planned}
    others = [state for name, state in told.items() if name not in known]
    return tuple(_with_tail(state, directory) for state in [*states, *others])


def _refused(directory: Path) -> tuple[NodeRefusal, ...]:
    try:
        return tuple(read_records(directory, "refused", NodeRefusal).records.values())
    except OSError as error:
        raise _unreadable(directory / "refused", error) from None


def _with_tail(state: WorkerState, directory: Path) -> WorkerState:
    if state.phase != "failed" or state.log_tail:
        return state
    return state.model_copy(update={"log_tail": log_tail(directory / "logs" / f"{state.id}.log")})


def _ended(state: WorkerState) -> WorkerState:
    """A worker of a job that has ended does not run, whatever its last record says: its agent may have been killed."""
    if state.phase in {"failed", "stopped"}:
        return state
    return state.model_copy(update={"phase": "stopped", "detail": "the job has ended"})


def _no_room(directory: Path) -> str:
    """That the disk of the job directory is full, in words: no process of the job can say so there."""
    room = os.statvfs(directory)
    if room.f_bavail * room.f_frsize >= _ROOM_BYTES and (room.f_favail or not room.f_files):
        return ""
    return f"the disk of {directory} is full, nothing more can be written there"


def _first_detail(workers: tuple[WorkerState, ...]) -> str:
    return next((f"{worker.id}: {worker.detail}" for worker in workers if worker.phase == "failed"), "")


def _record(directory: Path, name: str, kind: type[N]) -> N | None:
    try:
        return read_dir_record(directory, name, kind)
    except (OSError, UnreadableRecordError) as error:
        raise _unreadable(directory / name, error) from None


def _simulated(directory: Path) -> bool:
    path = directory / "service.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _unreadable(path, error) from None
    return load_service(text, source=str(path), site=None).engine == "sim"


def _unreadable(path: Path, error: OSError | UnreadableRecordError) -> UnverifiedError:
    why = error if isinstance(error, UnreadableRecordError) else error.strerror
    return UnverifiedError(f"{path}: {why}", remedy="see logs/ in the job directory")
