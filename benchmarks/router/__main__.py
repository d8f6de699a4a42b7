"""Routers side by side: ours and, where it is installed, vLLM's, on the same fake engines, peers in turn.

    python -m benchmarks.router [--repetitions 3] [--rivals ENV/bin] [--only CASE,...] [--out FILE]

`ENV` is an environment with `pip install vllm-router`. Needs a C compiler and two cores: one for the router that is
measured, one for engines and load. With everything of ours on: key check, metrics, costs of paths, log. "cap" is
requests per second of router CPU: what one full core would do, and the figure that noise moves least. Prints Markdown:
medians and ranges, ratios paired by repetition, and for each goal whether it is met or how far it is.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.router.cases import CASES
from benchmarks.router.machine import Machine
from benchmarks.router.ours import beat, make_job
from benchmarks.router.peers import Peer, peers_of
from benchmarks.router.table import Samples, rows

_LEAST_CORES = 2
_BURSTS = 2
"""The tail of TTFT is noisy: it is measured this many times in each repetition."""


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.router", description="Routers side by side.")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rivals", type=Path, help="the bin directory of an environment with vllm-router")
    parser.add_argument("--only", default=",".join(CASES), help=f"cases, of: {', '.join(CASES)}")
    parser.add_argument("--modes", default="pd,plain")
    parser.add_argument("--out", type=Path, help="a file for each figure, one JSON object a line")
    parser.add_argument("--keep", type=Path, help="a directory for logs and programs, kept")
    words = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < _LEAST_CORES:
        sys.exit("two cores are needed: one for the router, one for engines and load")
    with tempfile.TemporaryDirectory() as made:
        work = words.keep or Path(made)
        work.mkdir(exist_ok=True)
        machine = Machine(work, router_core=cores[0], other_core=cores[1])
        ended = threading.Event()
        try:
            jobs = {mode: Path(made) / f"job-{mode}" for mode in ("pd", "plain")}
            for mode, job in jobs.items():
                make_job(job, disaggregated=mode == "pd")
                threading.Thread(target=beat, args=(job, ended), daemon=True).start()
            machine.start_engines()
            peers = [peer for peer in peers_of(jobs, words.rivals) if peer.mode in words.modes.split(",")]
            for peer in peers:
                machine.start_router(peer.name, peer.argv, peer.port)
            time.sleep(1)
            samples = _measure(machine, peers, words.only.split(","), words.repetitions, words.out)
        finally:
            ended.set()
            machine.end()
    now = datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M UTC")
    print(
        f"{now}, {platform.machine()}, {len(cores)} cores, {_processor()}, Python {platform.python_version()}, ", end=""
    )
    print(f"load {os.getloadavg()[0]:.1f}, {words.repetitions} repetitions\n")
    print("\n".join(rows(samples)))
    return 0


def _measure(machine: Machine, peers: list[Peer], cases: list[str], repetitions: int, out: Path | None) -> Samples:
    samples: Samples = {}
    for repetition in range(repetitions):
        for case in cases:
            for _ in range(_BURSTS if case == "burst" else 1):
                shift = repetition % len(peers)
                for peer in peers[shift:] + peers[:shift]:
                    figures = CASES[case](machine, peer)
                    for name, value in figures.items():
                        samples.setdefault((peer.name, case, name), []).append(value)
                    if out is not None:
                        with out.open("a") as file:
                            file.write(json.dumps({"peer": peer.name, "case": case, "n": repetition, **figures}) + "\n")
            print(f"repetition {repetition + 1}: {case}", file=sys.stderr)
    return samples


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown processor"


if __name__ == "__main__":
    sys.exit(main())
