"""Workers of several pipeline stages: which of them no engine can be started for, and why."""

from hpcserve.errors import PlacementError
from hpcserve.nouns import Plan, PlannedWorker, Role

__all__ = ["start_obstacle", "worker_obstacle"]


def start_obstacle(plan: Plan) -> PlacementError | None:
    """Why the workers of a plan cannot all be started, as an error to raise or to print; None where they can."""
    return next((found for worker in plan.workers if (found := worker_obstacle(worker)) is not None), None)


def worker_obstacle(worker: PlannedWorker) -> PlacementError | None:
    """The same of one worker.

    vLLM 0.32's connector refuses a consumer of several stages, whatever its producer has, and the one that pulls a
    producer too where layers differ in what they keep (kv_connector/v1/nixl/base_worker.py, `pp_size`).
    """
    if worker.stages > 1 and worker.role != Role.AGGREGATED:
        return PlacementError(
            f"{worker.id} has {worker.stages} pipeline stages, and vLLM 0.32 hands no KV over between workers of "
            "several: its NixlConnector refuses pipeline_parallel_size above 1 on the decode side",
            remedy="set pipeline_parallel: 1 and more tensor_parallel, or mode: aggregated",
        )
    nodes = dict.fromkeys(rank.node for rank in worker.ranks)
    if len(nodes) > 1:
        return PlacementError(
            f"{worker.id} spans {', '.join(nodes)}: that is planned, not started, as an engine is started on one node",
            remedy="lower tensor_parallel or pipeline_parallel, or choose larger nodes",
        )
    return None
