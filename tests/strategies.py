"""Hypothesis strategies for sites, services and allocations that hang together."""

from dataclasses import dataclass

from hypothesis import strategies as st

from hpcserve.nouns import (
    Allocation,
    Distance,
    EngineFacts,
    Gpu,
    GrantedGpu,
    GrantedNode,
    Mode,
    ModelShape,
    Network,
    Networks,
    Nic,
    NicKind,
    NodeGroup,
    NodeType,
    NvlinkDomain,
    NvlinkIsland,
    Partition,
    Paths,
    Plan,
    Pool,
    Rate,
    Role,
    Runtime,
    RuntimeKind,
    Service,
    Site,
    Slo,
    SlurmDialect,
    Switch,
    Transport,
    Workload,
)
from hpcserve.site import hosts_of

__all__ = ["Case", "allocation_of", "cases", "model_shapes", "rates", "services", "sites"]

SIM = EngineFacts(name="sim", version="1", platform="simulated", kv_connectors=("NixlConnector",), nixl_version=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A site, and a model and a service that may be placed on it."""

    site: Site
    shape: ModelShape
    service: Service


def rates() -> st.SearchStrategy[Rate]:
    """Few values, so that ties are common."""
    return st.builds(
        Rate,
        nominal_gb_per_s=st.sampled_from([0.125, 1.0, 25.0, 50.0, 150.0]),
        efficiency=st.sampled_from([0.5, 0.956, 1.0]),
        source=st.just("drawn"),
    )


@st.composite
def node_types(draw: st.DrawFn, *, most_gpus: int = 3) -> NodeType:
    count = draw(st.integers(1, most_gpus))
    owners = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    nics = [
        Nic(
            name=f"mlx5_{number}:1",
            kind=NicKind.INFINIBAND,
            rate=draw(rates()),
            gpus=tuple(gpu for gpu, owner in enumerate(owners) if owner == number),
        )
        for number in sorted(set(owners))
    ]
    linked = draw(st.sets(st.integers(0, count - 1), max_size=count)) if count > 1 else set()
    island = (NvlinkIsland(gpus=tuple(sorted(linked)), rate=draw(rates())),) if len(linked) > 1 else ()
    return NodeType(
        cores=draw(st.integers(1, 9)),
        memory_gib=64.0,
        gpu=Gpu(model="drawn", count=count, memory_gib=80.0),
        nics=tuple(nics),
        nvlink=island,
        host_path=draw(rates()),
    )


@st.composite
def sites(draw: st.DrawFn, *, most_leaves: int = 3, most_nodes_per_leaf: int = 2, joined: bool = True) -> Site:
    """Sites of one to three leaves, in one tree or (not `joined`) perhaps in several."""
    kinds = {f"type{number}": draw(node_types()) for number in range(draw(st.integers(1, 2)))}
    leaves = [draw(st.integers(1, most_nodes_per_leaf)) for _ in range(draw(st.integers(1, most_leaves)))]
    names = draw(st.permutations([f"n{number:02}" for number in range(sum(leaves))]))
    remaining = iter(names)
    members = [[next(remaining) for _ in range(count)] for count in leaves]
    under_spine = [joined or draw(st.booleans()) for _ in leaves]
    switches = [
        Switch(name=f"leaf{number}", hosts=",".join(hosts), uplink=draw(rates()) if under_spine[number] else None)
        for number, hosts in enumerate(members)
    ]
    below = [f"leaf{number}" for number, under in enumerate(under_spine) if under]
    if below:
        switches.append(Switch(name="spine", switches=",".join(below)))
    racked = draw(st.lists(st.sampled_from(sorted(names)), unique=True, max_size=4)) if len(names) > 1 else []
    cut = draw(st.integers(0, len(racked)))
    return Site(
        schema_="hpcserve.site/1",
        name="drawn",
        description="drawn",
        node_types=kinds,
        nodes=tuple(NodeGroup(hosts=name, type=draw(st.sampled_from(sorted(kinds)))) for name in sorted(names)),
        partitions={"main": Partition(hosts=",".join(sorted(names)), max_time="7-00:00:00", account_required=False)},
        switches=tuple(switches),
        nvlink_domains=tuple(
            NvlinkDomain(name=f"rack{number}", hosts=",".join(hosts), rate=draw(rates()))
            for number, hosts in enumerate((racked[:cut], racked[cut:]))
            if hosts
        ),
        networks=Networks(control=Network(interface="ctl0"), data=Network(subnet="10.1.0.0/16")),
        slurm=SlurmDialect(gpu_request="gres", exclusive=draw(st.booleans()), switches_option=draw(st.booleans())),
        transport=Transport(ucx={"UCX_TLS": "tcp"}),
        runtimes={"hpcserve": Runtime(kind=RuntimeKind.NONE), "vllm": Runtime(kind=RuntimeKind.VENV, path="/venv")},
        paths=Paths(jobs="/jobs", models="/models", cache="/cache"),
    )


def model_shapes() -> st.SearchStrategy[ModelShape]:
    """Models with enough heads for any small tensor parallelism that divides 8."""
    return st.builds(
        lambda layers, kv_heads: ModelShape(
            name="drawn",
            architecture="LlamaForCausalLM",
            layers=layers,
            attention_heads=8,
            kv_heads=kv_heads,
            head_dim=64,
            max_context_tokens=8192,
            kv_dtype="bfloat16",
            kv_bytes_per_token=2 * layers * kv_heads * 64 * 2,
            weights_bytes=None,
        ),
        st.integers(1, 80),
        st.sampled_from([2, 4, 8]),
    )


@st.composite
def services(
    draw: st.DrawFn, *, modes: tuple[str, ...] = ("auto", "disaggregated", "aggregated"), most_workers: int = 2
) -> Service:
    """Services with one prefill and one decode pool on partition `main`."""
    pools = tuple(
        Pool(role=role, workers=draw(st.integers(1, most_workers)), tensor_parallel=draw(st.sampled_from([1, 1, 2])))
        for role in (Role.PREFILL, Role.DECODE)
    )
    input_tokens = draw(st.integers(1, 4096))
    return Service(
        schema_="hpcserve.service/1",
        name="drawn",
        model="drawn",
        served_name="drawn",
        engine="sim",
        mode=draw(st.sampled_from([Mode(mode) for mode in modes])),
        distance=draw(st.sampled_from(list(Distance))),
        partition="main",
        time="1:00:00",
        pools=pools,
        slo=Slo(ttft_ms=1000.0, tpot_ms=100.0),
        workload=Workload(
            input_tokens=input_tokens,
            output_tokens=16,
            cached_prefix_tokens=draw(st.integers(0, input_tokens - 1)),
            prefill_tokens_per_s=draw(st.none() | st.floats(1.0, 1e7)),
        ),
    )


def cases(
    *, joined: bool = True, modes: tuple[str, ...] = ("disaggregated",), most_workers: int = 2
) -> st.SearchStrategy[Case]:
    """A site, a model and a service; whether it can be placed is open."""
    return st.builds(
        Case, site=sites(joined=joined), shape=model_shapes(), service=services(modes=modes, most_workers=most_workers)
    )


def allocation_of(site: Site, plan: Plan) -> Allocation:
    """The nodes of a plan as their agents would find them if they are just what the site says, the head node first."""
    kinds = hosts_of(site)
    names = (plan.router.node, *(name for name in kinds if name in plan.nodes and name != plan.router.node))
    return Allocation(
        nodes=tuple(
            GrantedNode(
                name=name,
                hostname=name,
                control_address=f"10.0.0.{number}",
                data_address=f"10.1.0.{number}",
                cores=tuple(range(kinds[name].cores)),
                gpus=tuple(GrantedGpu(index=index, uuid=None) for index in range(kinds[name].gpu.count)),
                engine=SIM,
                ports=tuple((20_000 + 100 * slot, 10) for slot in range(kinds[name].gpu.count + 1)),
                agent_pid=1,
                generation="1",
            )
            for number, name in enumerate(names, start=1)
        )
    )
