"""`EngineCommand`, and what all engines' commands share: ports, networks, the KV connector."""

from pydantic import Field

from hpcserve.engines.counters import EngineCounters
from hpcserve.engines.netdevices import ucx_net_devices
from hpcserve.engines.words import option_value
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
)
from hpcserve.site import hosts_of

__all__ = [
    "KEY_VARIABLE",
    "EngineCommand",
    "check_worker",
    "handoff_of",
    "network_environment",
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
    if len(worker.ranks) > 1:
        nodes = ", ".join(rank.node for rank in worker.ranks)
        raise PlacementError(
            f"worker {worker.id} spans {nodes}; an engine is started on one node", remedy="lower tensor_parallel"
        )
    if worker.node != node.name:
        raise PlacementError(f"worker {worker.id} is planned on {worker.node}, not on {node.name}")
    if worker.port is None or worker.side_channel_port is None:
        raise PlacementError(f"worker {worker.id} has no ports yet", remedy="place it on granted nodes first")
    return worker.port, worker.side_channel_port


def transfer_config(service: Service, worker: PlannedWorker, engine: EngineFacts) -> dict[str, object] | None:
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
    return {
        "kv_connector": CONNECTOR,
        "kv_role": role,
        # vLLM calls the GPU "cuda" on ROCm as well (platforms/rocm.py).
        "kv_buffer_device": "cpu" if engine.platform in {"cpu", "simulated"} else "cuda",
        "kv_load_failure_policy": "fail",
        # Read by both sides: how long KV is kept, and how often the decode side prolongs that (nixl/base_scheduler.py).
        "kv_connector_extra_config": {"kv_lease_duration": service.kv_lease_s},
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
    env |= site.transport.ucx
    env["UCX_NET_DEVICES"] = ucx_net_devices(worker.ranks[0].nics, _node_type(site, worker), worker=worker.id)
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
