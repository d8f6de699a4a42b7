"""`vllm serve` on CUDA and on CPU; options and variables as in vLLM 0.32 (engine/arg_utils.py, envs.py)."""

import json
from collections.abc import Mapping
from pathlib import Path

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
from hpcserve.engines.words import option_value
from hpcserve.errors import PlacementError
from hpcserve.nouns import EngineFacts, GrantedNode, Handoff, Plan, PlannedWorker, Service, Site
from hpcserve.wire import Complaint

__all__ = ["VllmAdapter"]

_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}

# The CPU engine would else take a share of the node's whole memory, which other workers of the node need too. 512 MiB
# hold 23,301 tokens of a model of 23,040 KV bytes per token.
_CPU_KV_CACHE_BYTES = 512 * 2**20

# vLLM's CPU attention takes multiples of 32; its own default of 128 rounds every transfer up to 128 tokens.
_CPU_BLOCK_SIZE = 32

# vllm/config/cache.py, DEFAULT_BLOCK_SIZE; an attention backend may settle another: a running engine's word goes first.
_CUDA_BLOCK_SIZE = 16


class VllmAdapter:
    """vLLM."""

    @property
    def facts_command(self) -> tuple[str, ...]:
        """Argv that prints EngineFacts; a file of this package, run by the engine's Python, which has no hpcserve."""
        return ("python", str(Path(__file__).with_name("vllm_facts.py")))

    def complaints(self, service: Service) -> tuple[Complaint, ...]:
        """What the service may not set."""
        return reserved_complaints(service)

    def command(
        self,
        *,
        worker: PlannedWorker,
        service: Service,
        site: Site,
        node: GrantedNode,
        model_dir: str,
        peers: tuple[int, ...] = (),
        rates: Mapping[str, float] | None = None,  # noqa: ARG002 - real transfers pace themselves
    ) -> EngineCommand:
        """`vllm serve ...` for this worker; raises PlacementError where plan, node and engine do not fit together."""
        port, side_channel_port = check_worker(worker, node)
        platform = node.engine.platform
        user_args = (*service.args, *pool_of(service, worker).args)
        argv = ["vllm", "serve", model_dir, "--served-model-name", service.served_name]
        argv += ["--host", node.control_address, "--port", str(port)]
        argv += parallel_arguments(worker)
        env = dict(_QUIET)
        if platform == "cpu":
            env |= _cpu_environment(worker)
            argv += _cpu_arguments(user_args, service, worker)
        elif platform == "cuda":
            env["CUDA_VISIBLE_DEVICES"] = _visible_gpus(worker, node, peers)
        else:
            raise PlacementError(
                f"vLLM on {node.name} is built for {platform}", remedy="this release starts vLLM on CUDA and on CPU"
            )
        config = transfer_config(service, worker, node.engine, site.transport)
        if config is not None:
            argv += ["--kv-transfer-config", json.dumps(config, separators=(",", ":"))]
        events = events_config(service, worker, node)
        if events is not None:
            argv += ["--kv-events-config", json.dumps(events, separators=(",", ":"))]
        env |= network_environment(worker=worker, site=site, node=node, side_channel_port=side_channel_port)
        return EngineCommand(argv=(*argv, *user_args), env=env | user_environment(service, worker))

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
        args = (*service.args, *pool_of(service, worker).args)
        return handoff_of(
            service,
            worker,
            engine,
            counters,
            usual_block_size=_CPU_BLOCK_SIZE if engine.platform == "cpu" else _CUDA_BLOCK_SIZE,
            kv_dtype=option_value(args, "--kv-cache-dtype") or option_value(args, "--dtype") or "auto",
        )


def _cpu_environment(worker: PlannedWorker) -> dict[str, str]:
    """Threads as many as cores, unpinned (the agent binds the worker), and fewer processes where one rank allows it."""
    cores = {core for rank in worker.ranks for core in rank.cores}
    threads = max(1, len(cores) // len(worker.gpus))
    env = {
        "OMP_NUM_THREADS": str(threads),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # vLLM's own value; it can no longer set it when a plugin imported nixl before it (distributed/nixl_utils.py).
        "UCX_RCACHE_MAX_UNRELEASED": "1024",
    }
    if len(worker.gpus) == 1:
        # The worker then runs inside the engine's process: 0.6 GiB and 6 CPU-seconds less per start.
        env["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return env


def _cpu_arguments(user_args: tuple[str, ...], service: Service, worker: PlannedWorker) -> list[str]:
    """Arguments that the CPU engine needs and the user did not give."""
    arguments = [] if option_value(user_args, "--enforce-eager") is not None else ["--enforce-eager"]
    if option_value(user_args, "--kv-cache-memory-bytes") is None and "VLLM_CPU_KVCACHE_SPACE" not in user_environment(
        service, worker
    ):
        arguments += ["--kv-cache-memory-bytes", str(_CPU_KV_CACHE_BYTES)]
    block_size = option_value(user_args, "--block-size")
    if block_size is None:
        arguments += ["--block-size", str(_CPU_BLOCK_SIZE)]
    elif not block_size.isdigit() or int(block_size) == 0 or int(block_size) % _CPU_BLOCK_SIZE:
        raise PlacementError(
            f"worker {worker.id}: --block-size {block_size} on CPU",
            remedy=f"give a multiple of {_CPU_BLOCK_SIZE}, or leave it out",
        )
    return arguments


def _visible_gpus(worker: PlannedWorker, node: GrantedNode, peers: tuple[int, ...]) -> str:
    """UUIDs of the worker's own GPUs, then of its peers': vLLM uses the first, CUDA IPC needs to see the others."""
    own = worker.gpus
    if len(own) != worker.tensor_parallel * worker.stages:
        raise PlacementError(
            f"worker {worker.id} of tensor_parallel {worker.tensor_parallel} was given {len(own)} GPUs of {node.name}"
        )
    uuids = {gpu.index: gpu.uuid for gpu in node.gpus}
    shown: list[str] = []
    for index in dict.fromkeys((*own, *peers)):
        uuid = uuids.get(index)
        if uuid is None:
            raise PlacementError(
                f"GPU {index} of {node.name} has no UUID, and worker {worker.id} needs it",
                remedy="see what nvidia-smi -L prints on that node inside the job",
            )
        shown.append(uuid)
    return ",".join(shown)
