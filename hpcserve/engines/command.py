"""`EngineCommand`, and what all engines' commands share: ports, networks, the KV connector."""

from pydantic import Field

from hpcserve.engines.counters import EngineCounters
from hpcserve.engines.netdevices import nic_kind, ucx_net_devices
from hpcserve.engines.stages import worker_obstacle
from hpcserve.engines.words import option_name, option_value
from hpcserve.errors import PlacementError
from hpcserve.nouns import (
    EngineFacts,
    GrantedNode,
    Handoff,
    NodeType,
    Noun,
    PlannedWorker,
    Pool,
    Role,
    Service,
    Site,
    Transport,
)
from hpcserve.site import hosts_of

__all__ = [
    "KEY_VARIABLE",
    "EngineCommand",
    "check_worker",
    "event_ports",
    "events_config",
    "handoff_of",
    "keeps_prefixes",
    "network_environment",
    "parallel_arguments",
    "pool_of",
    "transfer_config",
    "user_environment",
]

KEY_VARIABLE = "VLLM_API_KEY"
"""vLLM reads the key that its clients must show from this variable (entrypoints: `--api-key` or VLLM_API_KEY)."""

CONNECTOR = "NixlConnector"
"""The pull connector of vLLM over NIXL, vllm/distributed/kv_transfer/kv_connector/v1/nixl."""

_KV_ROLES = {Role.PREFILL: "kv_producer", Role.DECODE: "kv_consumer"}


class EngineCommand(Noun):
    """How one worker is started: every word of `argv` and every value of `env` reaches the process unchanged.

    `key_variable` names the variable that the launch script sets from the job's key file: the key is nowhere in here.
    """

    argv: tuple[str, ...] = Field(min_length=1)
    env: dict[str, str]
    key_variable: str = KEY_VARIABLE


def pool_of(service: Service, worker: PlannedWorker) -> Pool:
    """The pool that a worker belongs to: `prefill-2` with pools of two prefill workers each is of the second.

    Workers of a role are numbered through the pools of that role in the file's order. An aggregated worker that no pool
    names (mode `aggregated` of a service with P and D pools) is run as the decode pool says.
    """
    pools = [pool for pool in service.pools if pool.role == worker.role]
    if not pools and worker.role == Role.AGGREGATED:
        pools = [pool for pool in service.pools if pool.role == Role.DECODE]
    if not pools:
        raise PlacementError(
            f"worker {worker.id} is of role {worker.role}, and service {service.name} has no such pool",
            remedy="add a pool of that role",
        )
    number = worker.id.rpartition("-")[2]
    index = int(number) if number.isdigit() else 0
    for pool in pools:
        if index < pool.workers:
            return pool
        index -= pool.workers
    return pools[-1]


def check_worker(worker: PlannedWorker, node: GrantedNode) -> tuple[int, int]:
    """The worker's HTTP and side-channel ports; raises PlacementError where it cannot be started as planned."""
    obstacle = worker_obstacle(worker)
    if obstacle is not None:
        raise obstacle
    if worker.node != node.name:
        raise PlacementError(f"worker {worker.id} is planned on {worker.node}, not on {node.name}")
    if worker.port is None or worker.side_channel_port is None:
        raise PlacementError(f"worker {worker.id} has no ports yet", remedy="place it on granted nodes first")
    return worker.port, worker.side_channel_port


def transfer_config(
    service: Service, worker: PlannedWorker, engine: EngineFacts, transport: Transport
) -> dict[str, object] | None:
    """The value of --kv-transfer-config; None for an aggregated worker. Names as in vllm/config/kv_transfer.py.

    Raises PlacementError where the installed engine lacks what a safe handoff needs.
    """
    role = _KV_ROLES.get(worker.role)
    if role is None:
        return None
    lacking = [] if CONNECTOR in engine.kv_connectors else [CONNECTOR]
    if engine.kv_options is not None:
        needed = ("kv_load_failure_policy", "kv_lease_duration")
        lacking += [option for option in needed if option not in engine.kv_options]
    if lacking:
        raise PlacementError(
            f"{engine.name} {engine.version} lacks {', '.join(lacking)}, which handing over KV needs",
            remedy="install vLLM 0.32 or later with nixl, or set mode: aggregated",
        )
    extra: dict[str, object] = {"kv_lease_duration": service.kv_lease_s}
    if transport.backend != "ucx":
        # Default ["UCX"] (nixl/base_worker.py); the names are those of NIXL's plugins.
        extra["backends"] = [transport.backend.upper()]
    return {
        "kv_connector": CONNECTOR,
        "kv_role": role,
        # vLLM calls the GPU "cuda" on ROCm as well (platforms/rocm.py).
        "kv_buffer_device": "cpu" if engine.platform in {"cpu", "simulated"} else "cuda",
        "kv_load_failure_policy": "fail",
        # Read by both sides: how long KV is kept, and how often the decode side prolongs that (nixl/base_scheduler.py).
        "kv_connector_extra_config": extra,
    }


def parallel_arguments(worker: PlannedWorker) -> list[str]:
    """How many GPUs the worker has, as vLLM says it; stages only where there are several."""
    stages = ["--pipeline-parallel-size", str(worker.stages)] if worker.stages > 1 else []
    return ["--tensor-parallel-size", str(worker.tensor_parallel), *stages]


def keeps_prefixes(service: Service, worker: PlannedWorker) -> bool:
    """Whether the worker keeps KV for requests that begin alike: vLLM does, unless it is told not to."""
    kept = True
    for word in (*service.args, *pool_of(service, worker).args):
        name = option_name(word)
        if name in {"--enable-prefix-caching", "--no-enable-prefix-caching"}:
            kept = name == "--enable-prefix-caching"
    return kept


def event_ports(service: Service, worker: PlannedWorker) -> tuple[int, int] | None:
    """Ports at which the worker publishes and repeats KV events: those behind its side channel's.

    None where it does not publish, or has no ports yet.
    """
    if service.router.kv != "events" or worker.side_channel_port is None:
        return None
    if not keeps_prefixes(service, worker):
        return None
    first = worker.side_channel_port + worker.tensor_parallel
    return first, first + 1


def events_config(service: Service, worker: PlannedWorker, node: GrantedNode) -> dict[str, object] | None:
    """The value of --kv-events-config; None where no events are wanted. Names as in vllm/config/kv_events.py.

    Raises PlacementError where the node's agent holds too few ports.
    """
    ports = event_ports(service, worker)
    if ports is None:
        return None
    if not any(first == worker.port and ports[1] < first + count for first, count in node.ports):
        raise PlacementError(
            f"worker {worker.id} needs {3 + worker.tensor_parallel} ports on {node.name} to publish KV events",
            remedy="start the agent with larger blocks of ports, or set router.kv: approximate",
        )
    # vLLM binds an address with a `*`, and connects to any other (distributed/kv_events.py).
    return {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{ports[0]}",
        "replay_endpoint": f"tcp://*:{ports[1]}",
        "topic": "kv-events",
    }


def handoff_of(
    service: Service,
    worker: PlannedWorker,
    engine: EngineFacts,
    counters: EngineCounters | None,
    *,
    usual_block_size: int,
    kv_dtype: str,
) -> Handoff | None:
    """What a worker must agree on with its partners; None for an aggregated one.

    The block size is what the running engine says in its counters, else what its arguments say, else the usual one.
    """
    if worker.role == Role.AGGREGATED:
        return None
    settled = None if counters is None else counters.block_size
    asked = option_value((*service.args, *pool_of(service, worker).args), "--block-size")
    return Handoff(
        kind="nixl-pull",
        connector=CONNECTOR,
        # The connector has no version of its own that one could ask for: vLLM hashes its version into the handshake.
        connector_version=engine.version,
        block_size=settled or int(asked or usual_block_size),
        kv_dtype=kv_dtype,
        tensor_parallel=worker.tensor_parallel,
        lease_s=service.kv_lease_s,
    )


def network_environment(
    *, worker: PlannedWorker, site: Site, node: GrantedNode, side_channel_port: int
) -> dict[str, str]:
    """Variables that put HTTP on the control network and KV on the data network."""
    env = {"VLLM_HOST_IP": node.control_address}
    if site.networks.control.interface is not None:
        env["GLOO_SOCKET_IFNAME"] = site.networks.control.interface
    if worker.role == Role.AGGREGATED:
        return env
    env["VLLM_NIXL_SIDE_CHANNEL_HOST"] = node.data_address
    env["VLLM_NIXL_SIDE_CHANNEL_PORT"] = str(side_channel_port)
    nics, node_type, transport = worker.ranks[0].nics, _node_type(site, worker), site.transport
    env |= transport.ucx | transport.kinds.get(nic_kind(nics, node_type, worker=worker.id), {})
    if transport.backend == "libfabric":
        # NIXL's LIBFABRIC backend finds the NICs nearest to a GPU itself (nixl, src/plugins/libfabric/README.md).
        return env | transport.libfabric
    env["UCX_NET_DEVICES"] = ucx_net_devices(nics, node_type, worker=worker.id)
    return env


def user_environment(service: Service, worker: PlannedWorker) -> dict[str, str]:
    """The service's variables and over them the pool's."""
    return {**service.env, **pool_of(service, worker).env}


def _node_type(site: Site, worker: PlannedWorker) -> NodeType:
    """The type of the worker's node; raises PlacementError where the site does not name the node."""
    node_type = hosts_of(site).get(worker.node)
    if node_type is None:
        raise PlacementError(
            f"worker {worker.id} is on {worker.node}, a node that site {site.name} does not name",
            remedy="add it under `nodes` in the site file",
        )
    return node_type
