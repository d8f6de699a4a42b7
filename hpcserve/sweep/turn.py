"""One placement's turn: its service comes up, is measured, and goes."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from hpcserve.bench import (
    Generator,
    Point,
    PoissonGenerator,
    Target,
    VllmBenchGenerator,
    run_alone,
    run_rate,
    target_of,
    unrealised_run,
)
from hpcserve.deploy import Planned, model_directory, prepare, read_model, write_job
from hpcserve.discovery import write_record
from hpcserve.errors import HpcserveError, PlacementError, ServiceError, TimeoutExpiredError
from hpcserve.fabric import fabric_of
from hpcserve.nouns import Distance, JobHandle, JobPhase, Plan, Run
from hpcserve.scheduler import Launcher, job_state, launcher_for, router_answers
from hpcserve.sweep.results import Order, PlacementOrder, Results
from hpcserve.sweep.shared import service_of
from hpcserve.sweep.steps import StepLauncher
from hpcserve.wire import encode_yaml

__all__ = ["take_turn"]

_READY_WITHIN_S = 1800.0
"""From start to proved; loading weights of hundreds of GB from a busy filesystem takes this long."""

_LOOK_S = 0.5


def take_turn(order: Order, mine: PlacementOrder, points: tuple[Point, ...], results: Results) -> None:
    """Measure the points of one placement and write each run as it ends; whatever fails becomes a run that says so.

    Nothing of the service is left when this returns, however it returns.
    """
    left = list(points)
    if mine.plan is None:
        _give_up(order, mine, left, results, mine.reason)
        return
    try:
        with _service(order, mine, mine.plan, results) as target:
            while left:
                results.write_run(_measure(order, mine, left[0], target))
                del left[0]
    except HpcserveError as error:
        _give_up(order, mine, left, results, str(error))


def _give_up(order: Order, mine: PlacementOrder, points: list[Point], results: Results, reason: str) -> None:
    for point in points:
        results.write_run(_unrealised(order, mine, point, reason))


def _unrealised(order: Order, mine: PlacementOrder, point: Point, reason: str) -> Run:
    return unrealised_run(
        point=point,
        service=service_of(order.service, mine.placement),
        site=order.site,
        plan=mine.plan,
        simulated=order.service.engine == "sim",
        reason=reason,
    )


def _measure(order: Order, mine: PlacementOrder, point: Point, target: Target) -> Run:
    try:
        if point.kind == "alone":
            return run_alone(point=point, target=target, limits=order.limits)
        return run_rate(point=point, target=target, generator=_generator(order), limits=order.limits)
    except ServiceError as error:
        return _unrealised(order, mine, point, str(error))


def _generator(order: Order) -> Generator:
    """VLLM's own load generator stands in vLLM's environment; beside the simulated engine there is none."""
    if order.service.engine == "sim":
        return PoissonGenerator()
    return VllmBenchGenerator(model_directory=model_directory(order.service, order.site))


@contextlib.contextmanager
def _service(order: Order, mine: PlacementOrder, plan: Plan, results: Results) -> Iterator[Target]:
    """The placement's service while the block runs: the job directory and agents of `submit`, in this allocation."""
    service = service_of(order.service, mine.placement)
    planned = Planned(
        site=order.site,
        service=service,
        model=read_model(service, order.site),
        shape=order.shape,
        fabric=fabric_of(order.site),
        plan=plan,
        texts={"service.yaml": encode_yaml(service), "site.yaml": encode_yaml(order.site)},
    )
    prepared = write_job(prepare(planned, launcher=order.launcher, jobs_dir=results.jobs))
    launcher: Launcher = StepLauncher(plan) if order.launcher == "slurm" else launcher_for("local")
    handle = launcher.submit(prepared.job)
    try:
        write_record(prepared.directory / "job.json", handle)
        _await_ready(prepared.directory, handle, launcher)
        target = target_of(prepared.directory, service=service, site=order.site)
        _refuse_other_distance(target.plan, mine.placement.distance)
        yield target
    finally:
        launcher.cancel(handle)


def _await_ready(directory: Path, handle: JobHandle, launcher: Launcher) -> None:
    end_s = time.monotonic() + _READY_WITHIN_S
    while True:
        state = job_state(directory, handle, launcher=launcher, answers=router_answers)
        if state.phase == JobPhase.READY:
            return
        failed = [worker for worker in state.workers if worker.phase == "failed"]
        if failed or state.phase in {JobPhase.FAILED, JobPhase.ENDED}:
            told = "; ".join(f"{worker.id}: {worker.detail}" for worker in failed) or state.reason
            raise ServiceError(f"the service {handle.name} did not come up: {told}", remedy=f"see {directory}/logs")
        if time.monotonic() >= end_s:
            raise TimeoutExpiredError(f"the service {handle.name} is not ready after {_READY_WITHIN_S:.0f} s")
        time.sleep(_LOOK_S)


def _refuse_other_distance(plan: Plan, wanted: Distance) -> None:
    """What was granted may be placed otherwise than was promised; that is then not the placement that was asked for."""
    others = {path.distance for path in plan.paths if path.distance != wanted}
    if wanted != Distance.BEST and others:
        raise PlacementError(f"on the nodes that were granted prefill and decode are {', '.join(sorted(others))}")
