"""How fast the simulator is: request events a minute on one core, how that grows, and how much memory it takes.

Run: `.venv/bin/python benchmarks/simulate_speed.py [--requests 40000] [--most-workers 64]`. A request event is an
arrival, an end of prefill, an end of transfer, a first token or an end: five for each request that is handed over. Each
line is a process of its own, so that its peak memory is its own. No test judges by it.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

from hpcserve.fabric import Link
from hpcserve.latency import distserve
from hpcserve.nouns import Role, Slo
from hpcserve.simulate import Deployment, Flow, Lengths, Offered, Overlap, Scheduling, Worker, simulate

SLO = Slo(ttft_ms=250.0, tpot_ms=100.0)
LENGTHS = [Lengths(tokens, out) for tokens in (100, 300, 500, 900) for out in (20, 100, 300)]
RATE_PER_PAIR = 6.0
KV_BYTES_PER_TOKEN = 819_200
"""OPT-13B: 2 * 40 layers * 40 heads * 128 * 2 bytes."""
MB = 1024


def main() -> None:
    """Print one line for each case."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--requests", type=int, default=40_000)
    asked.add_argument("--most-workers", type=int, default=64)
    asked.add_argument("--case", help=argparse.SUPPRESS)
    options = asked.parse_args()
    if options.case:
        print(json.dumps(measured(**json.loads(options.case))))
        return
    print(f"{'case':<34} {'requests':>9} {'events':>9} {'CPU s':>7} {'million events/min':>19} {'peak MB':>8}")
    for requests in (options.requests // 4, options.requests, options.requests * 4):
        show("1 prefill, 1 decode", requests=requests, pairs=1)
    pairs = 2
    while 2 * pairs <= options.most_workers:
        show(f"{pairs} prefill, {pairs} decode", requests=options.requests, pairs=pairs)
        pairs *= 4
    show("4 + 4, layers sent during prefill", requests=options.requests, pairs=4, layers=40)
    show("4 + 4, one uplink for all", requests=options.requests, pairs=4, uplink_gb_per_s=12.5)
    show("4 aggregated", requests=options.requests, pairs=4, aggregated=True)


def show(title: str, **case: object) -> None:
    """Measure it in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--case", json.dumps(case)], capture_output=True, text=True, check=True
    )
    got = json.loads(done.stdout)
    speed = got["events"] / got["cpu_s"] * 60 / 1e6
    line = f"{title:<34} {case['requests']:>9} {got['events']:>9} {got['cpu_s']:>7.1f} {speed:>19.2f}"
    print(f"{line} {got['peak_mb']:>8.0f}", flush=True)


def measured(
    *, requests: int, pairs: int, layers: int = 0, uplink_gb_per_s: float = 1e4, aggregated: bool = False
) -> dict[str, float]:
    """Events, CPU seconds and peak resident MB of one run."""
    model = distserve("opt-13b", 1)
    scheduling = Scheduling(token_budget=2048)
    uplink = Link("uplink", uplink_gb_per_s, "made")

    def some(role: Role) -> list[Worker]:
        return [Worker(id=f"{role}-{n}", role=role, latency=model, scheduling=scheduling) for n in range(pairs)]

    prefills, decodes = some(Role.PREFILL), some(Role.DECODE)
    split = Deployment(
        workers=(*prefills, *decodes),
        flows={
            (p.id, d.id): (Flow((Link(f"{p.id} out", 25.0, "HDR"), uplink, Link(f"{d.id} in", 25.0, "HDR")), 1.0),)
            for p in prefills
            for d in decodes
        },
        kv_bytes=lambda tokens, ranks: tokens * KV_BYTES_PER_TOKEN // ranks,
        overlap=Overlap(layers=layers) if layers else None,
    )
    deployment = Deployment(workers=tuple(some(Role.AGGREGATED))) if aggregated else split
    rate = RATE_PER_PAIR * pairs * (0.5 if aggregated else 1.0)
    began = time.process_time()
    outcome = simulate(deployment, Offered(rate=rate, requests=requests, lengths=LENGTHS), slo=SLO)
    return {
        "events": outcome.events,
        "cpu_s": time.process_time() - began,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MB,
    }


if __name__ == "__main__":
    main()
