"""Small, complete nouns for tests that need a plan, a service or a site and do not care how it was made."""

from typing import Any

from hpcserve.nouns import (
    Ask,
    Distance,
    Gpu,
    Handoff,
    Load,
    Mode,
    Network,
    Networks,
    Nic,
    NicKind,
    NodeGroup,
    NodeType,
    Partition,
    PathCost,
    Paths,
    Plan,
    PlannedWorker,
    Pool,
    Rank,
    Rate,
    Role,
    RouterSeat,
    Run,
    Runtime,
    RuntimeKind,
    Sample,
    Service,
    Site,
    Slo,
    SlurmDialect,
    Switch,
    Transfers,
    Transport,
    Validity,
    Verdict,
    Workload,
)

LEAVES = {"node01": "leaf1", "node02": "leaf1", "node03": "leaf2", "node04": "leaf2"}
KV_BYTES = 512 * 23_040
NEAR_MS, FAR_MS = 98.7, 491.5


def site() -> Site:
    rate = Rate(nominal_gb_per_s=0.125, efficiency=0.956, source="iperf3")
    uplink = Rate(nominal_gb_per_s=0.025, efficiency=0.96, source="iperf3")
    node_type = NodeType(
        cores=2,
        memory_gib=4.0,
        gpu=Gpu(model="cpu", count=2, memory_gib=2.0),
        nics=(Nic(name="data0", kind=NicKind.ETHERNET, rate=rate, gpus=(0, 1)),),
        host_path=rate,
    )
    return Site(
        schema_="hpcserve.site/1",
        name="onebox",
        description="four nodes on two leaves",
        node_types={"box": node_type},
        nodes=(NodeGroup(hosts="node[01-04]", type="box"),),
        partitions={"all": Partition(hosts="node[01-04]", max_time="1:00:00", account_required=False)},
        switches=(
            Switch(name="leaf1", hosts="node[01-02]", uplink=uplink),
            Switch(name="leaf2", hosts="node[03-04]", uplink=uplink),
            Switch(name="spine", switches="leaf[1-2]"),
        ),
        networks=Networks(control=Network(interface="eth0"), data=Network(interface="data0")),
        slurm=SlurmDialect(gpu_request="gres", exclusive=False, switches_option=True),
        transport=Transport(ucx={"UCX_TLS": "tcp"}),
        runtimes={"hpcserve": Runtime(kind=RuntimeKind.NONE), "vllm": Runtime(kind=RuntimeKind.NONE)},
        paths=Paths(jobs="~/jobs", models="~/models", cache="~/cache"),
    )


def service(**changes: Any) -> Service:
    made = Service(
        schema_="hpcserve.service/1",
        name="chat",
        model="tiny",
        served_name="tiny",
        engine="vllm",
        mode=Mode.DISAGGREGATED,
        partition="all",
        time="0:30:00",
        pools=(Pool(role=Role.PREFILL, workers=1), Pool(role=Role.DECODE, workers=1)),
        slo=Slo(ttft_ms=1000.0, tpot_ms=150.0),
        workload=Workload(input_tokens=512, output_tokens=16, cached_prefix_tokens=480),
    )
    return made.model_copy(update=changes)


def handoff(**changes: Any) -> Handoff:
    return Handoff(
        kind="nixl-pull",
        connector="NixlConnector",
        connector_version="1",
        block_size=32,
        kv_dtype="bfloat16",
        tensor_parallel=1,
        lease_s=30,
    ).model_copy(update=changes)


def _worker(role: Role, number: int, node: str, gpu: int) -> PlannedWorker:
    rank = Rank(node=node, gpus=(gpu,), nics=("data0",), cores=(gpu,))
    return PlannedWorker(id=f"{role}-{number}", role=role, ranks=(rank,), tensor_parallel=1)


def plan(*, decode_node: str = "node02", granted: bool = True) -> Plan:
    """One prefill worker on node01 and one decode worker, near or far."""
    near = LEAVES[decode_node] == "leaf1"
    links = ("node01.data0", "leaf1", f"{decode_node}.data0")
    path = PathCost(
        prefill="prefill-0",
        decode="decode-0",
        distance="same-leaf" if near else "across-leaves",
        hops=links if near else ("node01.data0", "leaf1", "spine", "leaf2", f"{decode_node}.data0"),
        gb_per_s=0.1195 if near else 0.024,
        kv_bytes=KV_BYTES,
        transfer_ms=NEAR_MS if near else FAR_MS,
        source="iperf3",
    )
    return Plan(
        service="chat",
        site="onebox",
        granted=granted,
        asked_mode=Mode.DISAGGREGATED,
        mode="disaggregated",
        distance=Distance.SAME_LEAF if near else Distance.ACROSS_LEAVES,
        workers=(_worker(Role.PREFILL, 0, "node01", 0), _worker(Role.DECODE, 0, decode_node, 1)),
        router=RouterSeat(node="node01"),
        paths=(path,),
        verdict=Verdict(disaggregate=near, reasons=("as told",), worst_transfer_ms=path.transfer_ms, prefill_ms=900.0),
        ask=Ask(partition="all", nodes=2, gpus_per_node=2),
    )


def aggregated_plan() -> Plan:
    """One worker that serves whole requests on node01."""
    return plan().model_copy(
        update={
            "mode": "aggregated",
            "asked_mode": Mode.AGGREGATED,
            "distance": Distance.BEST,
            "workers": (_worker(Role.AGGREGATED, 0, "node01", 0),),
            "paths": (),
        }
    )


def samples(ttfts_ms: list[float], *, tpot_ms: float = 50.0) -> tuple[Sample, ...]:
    return tuple(
        Sample(start_s=float(place), input_tokens=512, output_tokens=16, ttft_ms=ttft, tpot_ms=tpot_ms)
        for place, ttft in enumerate(ttfts_ms)
    )


def rate_run(
    *, placement: str = "near", rate: float, ttfts_ms: list[float], duration_s: float | None = None, **changes: Any
) -> Run:
    """A valid run at a rate; `changes` replace any field of it."""
    made = _run(placement, f"{placement}.rate-{rate:g}", samples(ttfts_ms), duration_s or len(ttfts_ms) / rate)
    load = made.load.model_copy(update={"kind": "rate", "request_rate": rate, "requests": len(ttfts_ms)})
    return made.model_copy(update={"load": load, **changes})


def alone_run(*, placement: str = "near", each_ms: list[float], **changes: Any) -> Run:
    """A valid run of one request after another with each transfer's own time."""
    made = _run(placement, f"{placement}.alone", samples([300.0] * len(each_ms)), 10.0)
    moved = Transfers(
        count=len(each_ms), bytes=KV_BYTES * len(each_ms), failed=0, seconds=sum(each_ms) / 1e3, each_ms=tuple(each_ms)
    )
    return made.model_copy(update={"transfers": moved, **changes})


def _run(placement: str, run_id: str, taken: tuple[Sample, ...], duration_s: float) -> Run:
    where = plan(decode_node="node02" if placement == "near" else "node03")
    count = len(taken)
    return Run(
        id=run_id,
        sweep="demo",
        placement=placement,
        started_utc="2026-01-01T00:00:00Z",
        ended_utc="2026-01-01T00:01:00Z",
        simulated=False,
        plan=where,
        service=service(),
        site=site(),
        environment={"host": "node01"},
        load=Load(
            kind="alone", request_rate=None, requests=count, input_tokens=512, cached_prefix_tokens=480,
            output_tokens=16, seed=1, generator="test",
        ),
        samples=taken,
        duration_s=duration_s,
        transfers=Transfers(count=count, bytes=KV_BYTES * count, failed=0, seconds=0.1 * count),
        predicted_transfer_ms=where.paths[0].transfer_ms,
        validity=Validity(valid=True),
    )  # fmt: skip
