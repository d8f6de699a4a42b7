"""How placement grows: seconds for a plan by nodes and by workers, before submission and inside the job.

Run: `.venv/bin/python -m benchmarks.placement_scale [--most-nodes 4096] [--times 3] [--stages 1]`. A rail-
optimised fabric of 8 GPUs and 8 rails a node, 32 nodes a unit (as `fabric_scale` makes it); half of the workers
prefill, half decode, for a model of 80 layers and 8 KV heads. Each line: the median of processor seconds of `place` and
their spread, how much slower the slowest path and how much more the traffic may be than the least possible, and the
growth since the line before of the same kind. The last lines are a granted allocation of 64 nodes for 64 workers on the
largest site. No test judges by it.
"""

import argparse
import gc
import time
from functools import partial
from statistics import median

from benchmarks.fabric_scale import site_text
from hpcserve.fabric import Fabric, fabric_of
from hpcserve.nouns import (
    Allocation,
    Distance,
    EngineFacts,
    GrantedGpu,
    GrantedNode,
    Mode,
    ModelShape,
    Plan,
    Pool,
    Role,
    Service,
    Site,
    Slo,
    Workload,
)
from hpcserve.placement import place
from hpcserve.site import load_site

GPUS = 8
NODES = (64, 256, 1024, 4096)
WORKERS = (2, 4, 8, 16, 32, 64)
RANKS = (8, 4, 1)
SHAPE = ModelShape(
    name="made",
    architecture="LlamaForCausalLM",
    layers=80,
    attention_heads=64,
    kv_heads=8,
    head_dim=128,
    max_context_tokens=131_072,
    kv_dtype="bfloat16",
    kv_bytes_per_token=327_680,
    weights_bytes=None,
)


def main() -> None:
    """Grow nodes with 64 workers, workers on the largest site, then place on a granted allocation."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--most-nodes", type=int, default=NODES[-1])
    asked.add_argument("--times", type=int, default=3)
    asked.add_argument("--stages", type=int, default=1, help="pipeline stages of a worker, so many fewer workers")
    given = asked.parse_args()
    sites = {nodes: load_site(site_text(nodes), source="made") for nodes in NODES if nodes <= given.most_nodes}
    fabrics = {nodes: fabric_of(site) for nodes, site in sites.items()}
    largest = max(sites)
    print(
        f"{'nodes':>6} {'workers':>8} {'TP':>3} {'place s':>8} {'spread':>7}  path and traffic above the least possible"
    )
    for ranks in RANKS:
        last = None
        for nodes, site in sites.items():
            last = line(
                site, fabrics[nodes], workers=64, ranks=ranks, times=given.times, last=last, stages=given.stages
            )
    for ranks in RANKS:
        last = None
        for workers in WORKERS:
            last = line(
                sites[largest],
                fabrics[largest],
                workers=workers,
                ranks=ranks,
                times=given.times,
                last=last,
                stages=given.stages,
            )
    granted = allocation(fabrics[largest].nodes[:64])
    print("inside the job, 64 nodes granted:")
    for ranks in RANKS:
        line(
            sites[largest],
            fabrics[largest],
            workers=64,
            ranks=ranks,
            times=given.times,
            last=None,
            granted=granted,
            stages=given.stages,
        )


def line(
    site: Site,
    fabric: Fabric,
    *,
    workers: int,
    ranks: int,
    times: int,
    last: float | None,
    granted: Allocation | None = None,
    stages: int = 1,
) -> float:
    """Print one line; the median of its seconds."""
    workers = max(2, workers // stages)
    work = partial(
        place,
        fabric=fabric,
        site=site,
        shape=SHAPE,
        service=service(workers // 2, ranks, stages),
        allocation=granted,
    )
    made = [timed(work) for _ in range(times)]
    runs = [seconds for seconds, _ in made]
    grown = "" if last is None else f"   x{median(runs) / last:.2f}"
    print(
        f"{len(fabric.nodes):>6} {workers:>8} {ranks:>3} {median(runs):>8.3f} {max(runs) - min(runs):>7.3f}"
        f"  {gaps(made[0][1])}{grown}",
        flush=True,
    )
    return median(runs)


def gaps(plan: Plan) -> str:
    """How much the slowest path and the traffic are above the least possible, as far as the plan knows."""
    found = plan.assignment
    if found is None or found.best:
        return "the best"
    pairs = ((found.slowest_ms, found.slowest_at_least_ms), (found.traffic_ms, found.traffic_at_least_ms))
    return " and ".join("?" if not ms or not least else f"{ms / least - 1:.1%}" for ms, least in pairs)


def service(workers: int, ranks: int, stages: int = 1) -> Service:
    """A service of as many prefill as decode workers."""
    return Service(
        schema_="hpcserve.service/1",
        name="made",
        model="/models/made",
        served_name="made",
        engine="vllm",
        mode=Mode.DISAGGREGATED,
        distance=Distance.BEST,
        partition=None,
        time="1:00:00",
        pools=tuple(
            Pool(role=role, workers=workers, tensor_parallel=ranks, pipeline_parallel=stages)
            for role in (Role.PREFILL, Role.DECODE)
        ),
        slo=Slo(ttft_ms=1000.0, tpot_ms=100.0),
        workload=Workload(input_tokens=4096, output_tokens=256),
    )


def allocation(nodes: tuple[str, ...]) -> Allocation:
    """Granted nodes as their agents would report them."""
    facts = EngineFacts(
        name="vllm", version="0.32.0", platform="cuda", kv_connectors=("NixlConnector",), nixl_version="1.0.0"
    )
    return Allocation(
        nodes=tuple(
            GrantedNode(
                name=name,
                hostname=name,
                control_address=f"10.0.{number // 250}.{number % 250 + 1}",
                data_address=f"10.1.{number // 250}.{number % 250 + 1}",
                cores=tuple(range(96)),
                gpus=tuple(GrantedGpu(index=gpu, uuid=f"GPU-{name}-{gpu}") for gpu in range(GPUS)),
                engine=facts,
                ports=tuple((20_000 + 100 * block, 16) for block in range(GPUS + 1)),
                agent_pid=1,
                generation="1.0-0",
            )
            for number, name in enumerate(nodes)
        )
    )


def timed(work: "partial[Plan]") -> tuple[float, Plan]:
    """Processor seconds of one run, without the garbage collector, and the plan."""
    gc.collect()
    gc.disable()
    started = time.process_time()
    plan = work()
    seconds = time.process_time() - started
    gc.enable()
    return seconds, plan


if __name__ == "__main__":
    main()
