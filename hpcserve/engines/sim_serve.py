"""The project's simulated engine: vLLM's arguments and variables, plus what paces it."""

import json
from collections.abc import Mapping

from hpcserve.engines.command import (
    EngineCommand,
    check_worker,
    event_ports,
    events_config,
    handoff_of,
    network_environment,
    parallel_arguments,
    pool_of,
    transfer_config,
    user_environment,
)
from hpcserve.engines.counters import EngineCounters, read_counters
from hpcserve.engines.reserved import reserved_complaints
from hpcserve.engines.stages import start_obstacle
from hpcserve.errors import PlacementError
from hpcserve.nouns import EngineFacts, GrantedNode, Handoff, Plan, PlannedWorker, Service, Site
from hpcserve.wire import Complaint

__all__ = ["SimAdapter"]

_MODULE = ("python", "-m", "hpcserve.simengine")
_BLOCK_SIZE = 32


class SimAdapter:
    """The simulated engine, which runs in hpcserve's own environment."""

    @property
    def facts_command(self) -> tuple[str, ...]:
        """Argv that prints EngineFacts."""
        return (*_MODULE, "facts")

    def complaints(self, service: Service) -> tuple[Complaint, ...]:
        """What the service may not set."""
        reserved = {"--sim-gb-per-s": "the fabric's path says it", "--sim-model-tokenizer": "router.kv says it"}
        return reserved_complaints(service, reserved)

    def command(
        self,
        *,
        worker: PlannedWorker,
        service: Service,
        site: Site,
        node: GrantedNode,
        model_dir: str,
        peers: tuple[int, ...] = (),  # noqa: ARG002 - it has no GPU
        rates: Mapping[str, float] | None = None,
    ) -> EngineCommand:
        """`python -m hpcserve.simengine serve ...` for this worker; PlacementError where it does not fit its node."""
        port, side_channel_port = check_worker(worker, node)
        argv = [*_MODULE, "serve", model_dir, "--served-model-name", service.served_name]
        argv += ["--host", node.control_address, "--port", str(port)]
        argv += parallel_arguments(worker)
        config = transfer_config(service, worker, node.engine, site.transport)
        if config is not None:
            argv += ["--kv-transfer-config", json.dumps(config, separators=(",", ":"))]
        if rates:
            argv += ["--sim-gb-per-s", json.dumps(dict(rates), separators=(",", ":"))]
        events = events_config(service, worker, node)
        if events is not None:
            # The router tokenizes prompts as the model does, and so must who publishes their blocks.
            argv += ["--kv-events-config", json.dumps(events, separators=(",", ":")), "--sim-model-tokenizer"]
        env = network_environment(worker=worker, site=site, node=node, side_channel_port=side_channel_port)
        return EngineCommand(
            argv=(*argv, *service.args, *pool_of(service, worker).args), env=env | user_environment(service, worker)
        )

    def start_obstacle(self, plan: Plan) -> PlacementError | None:
        """Why the workers of a plan cannot be started; None where they can."""
        return start_obstacle(plan)

    def event_ports(self, service: Service, worker: PlannedWorker) -> tuple[int, int] | None:
        """Ports at which the worker publishes and repeats KV events; None where it does not."""
        return event_ports(service, worker)

    def read_counters(self, metrics_text: str) -> EngineCounters:
        """Counters in the text of `/metrics`."""
        return read_counters(metrics_text)

    def handoff(
        self,
        service: Service,
        worker: PlannedWorker,
        engine: EngineFacts,
        counters: EngineCounters | None = None,
    ) -> Handoff | None:
        """What this worker must agree on with its partners; None for an aggregated one."""
        return handoff_of(service, worker, engine, counters, usual_block_size=_BLOCK_SIZE, kv_dtype="auto")
