"""Whether the shapes that formulas put first hold the one that simulation finds best.

python benchmarks/shape_choice.py [GPUS ...]

OPT-13B on A100 by DistServe's published profile, all legal shapes of 4 and 8 GPUs (or as given) simulated under several
SLOs. For each mode: how many shapes there are, which place by formulas the best by simulation has, and what is lost by
simulating only the first six. Takes minutes.
"""

import sys
from pathlib import Path

from hpcserve.fabric import Fabric, fabric_of
from hpcserve.latency import named
from hpcserve.nouns import Alternative, Mode, ModelShape, Pool, Role, Service, Site, Slo, Workload
from hpcserve.placement import Speed, shape_compare, weigh
from hpcserve.site import load_site

SIMULATED = shape_compare._SIMULATED  # noqa: SLF001 - what is judged here
OPT_13B = ModelShape(
    name="opt-13b",
    architecture="OPTForCausalLM",
    layers=40,
    attention_heads=40,
    kv_heads=40,
    head_dim=128,
    max_context_tokens=2048,
    kv_dtype="float16",
    kv_bytes_per_token=819_200,
    weights_bytes=26_000_000_000,
)
WORKLOADS = ((512, 64), (1024, 256))
SLOS_MS = ((250.0, 25.0), (500.0, 40.0))


def service(site: Site, workload: Workload, slo: Slo) -> Service:
    """One whose pools do not matter: shapes are chosen."""
    return Service(
        schema_="hpcserve.service/1",
        name="opt",
        model="opt",
        served_name="opt",
        engine="vllm",
        mode=Mode.AUTO,
        partition=next(iter(site.partitions)),
        time="1:00:00",
        pools=(Pool(role=Role.PREFILL, workers=1), Pool(role=Role.DECODE, workers=1)),
        slo=slo,
        workload=workload,
    )


def report(gpus: int, fabric: Fabric, site: Site, workload: Workload, slo: Slo) -> None:
    """Two lines, one for each mode."""
    found = weigh(
        fabric=fabric,
        site=site,
        shape=OPT_13B,
        service=service(site, workload, slo),
        speeds=[
            Speed(model=named(f"distserve-opt-13b-a100-tp{ranks}"), prefill_ranks=ranks, decode_ranks=ranks)
            for ranks in (1, 2, 4)
        ],
        gpus=gpus,
    )
    for mode in ("disaggregated", "aggregated"):
        own = [one for one in found.comparison.alternatives if one.mode == mode]
        ranked = sorted(own, key=lambda one: (-(one.quick_requests_per_s or 0.0), one.gpus, one.name))
        best = max(ranked, key=goodput)
        lost = 1 - max(map(goodput, ranked[:SIMULATED])) / goodput(best) if goodput(best) else 0.0
        print(
            f"{gpus} GPUs, {workload.input_tokens}/{workload.output_tokens} tokens, TTFT {slo.ttft_ms:g} ms, TPOT "
            f"{slo.tpot_ms:g} ms, {mode}: {len(own)} shapes, the best ({best.name}) is number "
            f"{ranked.index(best) + 1}, lost {lost:.1%}",
            flush=True,
        )


def goodput(one: Alternative) -> float:
    """Per GPU; 0 where there is none."""
    return one.goodput_per_gpu or 0.0


def main() -> None:
    """Every setting."""
    path = Path(__file__).parents[1] / "site_configs" / "a100-hdr-dragonfly.yaml"
    site = load_site(path.read_text(encoding="utf-8"), source=str(path))
    fabric = fabric_of(site)
    shape_compare._SIMULATED = sys.maxsize  # noqa: SLF001 - all of them
    for gpus in map(int, sys.argv[1:] or ("4", "8")):
        for inputs, outputs in WORKLOADS:
            for ttft_ms, tpot_ms in SLOS_MS:
                report(
                    gpus,
                    fabric,
                    site,
                    Workload(input_tokens=inputs, output_tokens=outputs),
                    Slo(ttft_ms=ttft_ms, tpot_ms=tpot_ms),
                )


if __name__ == "__main__":
    main()
