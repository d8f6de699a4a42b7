"""What every engine's adapter answers, and which adapter is whose."""

from collections.abc import Mapping
from typing import Literal, Protocol

from hpcserve.engines.command import EngineCommand
from hpcserve.engines.counters import EngineCounters
from hpcserve.engines.sim_serve import SimAdapter
from hpcserve.engines.vllm_serve import VllmAdapter
from hpcserve.errors import PlacementError
from hpcserve.nouns import (
    Allocation,
    EngineFacts,
    GrantedNode,
    Handoff,
    Plan,
    PlannedWorker,
    Role,
    Service,
    Site,
)
from hpcserve.wire import Complaint

__all__ = ["Adapter", "EngineCommand", "adapter_for", "peer_gpus", "transfer_rates"]


class Adapter(Protocol):
    """One kind of engine. All methods are pure."""

    @property
    def facts_command(self) -> tuple[str, ...]:
        """Argv that prints an EngineFacts record as JSON when it runs inside the engine's runtime."""
        ...

    def complaints(self, service: Service) -> tuple[Complaint, ...]:
        """Arguments and variables of the service that hpcserve sets itself, by their path in the service file."""
        ...

    def command(
        self,
        *,
        worker: PlannedWorker,
        service: Service,
        site: Site,
        node: GrantedNode,
        model_dir: str,
        peers: tuple[int, ...] = (),
        rates: Mapping[str, float] | None = None,
    ) -> EngineCommand:
        """How this worker is started on its node.

        `peers`: GPU indexes that stay visible behind the worker's own, see `peer_gpus`; `rates`: see `transfer_rates`,
        used by the simulated engine only. Raises PlacementError where plan, node and engine do not fit together.
        """
        ...

    def start_obstacle(self, plan: Plan) -> PlacementError | None:
        """Why the workers of a plan cannot be started, as an error to raise or to print; None where they can."""
        ...

    def handoff(
        self,
        service: Service,
        worker: PlannedWorker,
        engine: EngineFacts,
        counters: EngineCounters | None = None,
    ) -> Handoff | None:
        """What this worker must agree on with its partners; None for an aggregated one.

        With the running engine's counters the block size is what the engine settled, else what it is expected to be.
        """
        ...

    def event_ports(self, service: Service, worker: PlannedWorker) -> tuple[int, int] | None:
        """Ports at which this worker publishes and repeats KV events; None where it does not."""
        ...

    def read_counters(self, metrics_text: str) -> EngineCounters:
        """Counters in the text of `/metrics`; raises ServiceError where it is not an engine's."""
        ...


def adapter_for(engine: Literal["vllm", "sim"]) -> Adapter:
    """The adapter of that engine."""
    return VllmAdapter() if engine == "vllm" else SimAdapter()


def peer_gpus(plan: Plan, worker: PlannedWorker) -> tuple[int, ...]:
    """GPU indexes of the workers on this worker's node that hand KV to it or take KV from it.

    Two engines copy KV by NVLink or PCIe (CUDA IPC) only where each sees the other's GPU.
    """
    partner = {Role.PREFILL: Role.DECODE, Role.DECODE: Role.PREFILL}.get(worker.role)
    return tuple(
        sorted(
            gpu
            for other in plan.workers
            if other.role == partner
            for rank in other.ranks
            if rank.node == worker.node
            for gpu in rank.gpus
        )
    )


def transfer_rates(plan: Plan, allocation: Allocation, worker: PlannedWorker) -> dict[str, float]:
    """GB/s at which this decode worker pulls from each prefill worker, by the latter's side channel `address:port`.

    Empty for other roles. This is what the simulated engine paces its transfers with.
    """
    rates: dict[str, float] = {}
    for path in plan.paths:
        if path.decode != worker.id:
            continue
        prefill = plan.worker(path.prefill)
        address = allocation.node(prefill.node).data_address
        rates[f"{address}:{prefill.side_channel_port}"] = path.gb_per_s
    return rates
