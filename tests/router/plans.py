"""The plan of a few workers of one job."""

from collections.abc import Sequence
from typing import Protocol

from hpcserve.nouns import PathCost, Plan, Role
from tests import synthetic


class Seat(Protocol):
    """A worker as far as a plan is concerned."""

    id: str
    role: Role


def plan_of(engines: Sequence[Seat], transfer_ms: dict[tuple[str, str], float] | None = None) -> Plan:
    plan = synthetic.plan()
    workers = tuple(plan.workers[0].model_copy(update={"id": engine.id, "role": engine.role}) for engine in engines)
    path = plan.paths[0]
    paths: tuple[PathCost, ...] = tuple(
        path.model_copy(
            update={
                "prefill": prefill.id,
                "decode": decode.id,
                "transfer_ms": (transfer_ms or {}).get((prefill.id, decode.id), 10.0),
            }
        )
        for prefill in engines
        for decode in engines
        if (prefill.role, decode.role) == (Role.PREFILL, Role.DECODE)
    )
    return plan.model_copy(
        update={"workers": workers, "paths": paths, "mode": "disaggregated" if paths else "aggregated"}
    )
