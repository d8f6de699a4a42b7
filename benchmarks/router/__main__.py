"""Routers side by side: ours and, where it is installed, vLLM's, on the same fake engines, peers in turn.

    python -m benchmarks.router [--repetitions 3] [--rivals ENV/bin] [--only CASE,...] [--out FILE]
                                [--model DIR [--dynamo PYTHON]]

`ENV` is an environment with `pip install vllm-router`. Needs a C compiler and two cores: one for the router that is
measured, one for engines and load. With everything of ours on: key check, metrics, costs of paths, log. "cap" is
requests per second of router CPU: what one full core would do, and the figure that noise moves least. Prints Markdown:
medians and ranges, ratios paired by repetition, and for each goal whether it is met or how far it is.

With `--model`, a model's directory, ours is measured with exact KV knowledge as well (`router.kv: events`): the whole
router with all its checks, before fake engines that tell of the KV of each prompt they are sent (teller.py). Left out
are an engine's own ways: blocks are told of at once, all are dropped where its room ends, and `/tokenize` is answered
by the router's own tokenizer. The run fails unless the router says that events were believed, that prompts were known
token by token, and that hits were predicted. "messages": prompts that are new, of messages that are known. "cold":
prompts that are new altogether; CPU for each KiB of them, the first time and again.

`PYTHON` is that of an environment with Dynamo, which serves from workers of its own (its mockers): its CPU is that of
its frontend, which holds its router, and not of these workers.
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

from benchmarks.router.cases import CASES, applies
from benchmarks.router.exact import until_exact
from benchmarks.router.machine import Machine
from benchmarks.router.ours import beat, make_exact_job, make_job
from benchmarks.router.peers import Peer, dynamo, exact, peers_of
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
    parser.add_argument("--model", type=Path, help="a directory with tokenizer.json and a chat template: exact mode")
    parser.add_argument("--dynamo", type=Path, help="the python of an environment with ai-dynamo; needs --model")
    parser.add_argument("--out", type=Path, help="a file for each figure, one JSON object a line")
    parser.add_argument("--keep", type=Path, help="a directory for logs and programs, kept")
    words = parser.parse_args()
    if words.dynamo is not None and words.model is None:
        parser.error("--dynamo needs --model: its workers and its router tokenize")
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
            every = peers_of(jobs, words.rivals)
            if words.model is not None:
                model, job = words.model.expanduser().resolve(), Path(made) / "job-exact"
                make_exact_job(job, model, machine.start_telling_engines(model))
                threading.Thread(target=beat, args=(job, ended), daemon=True).start()
                every.append(exact(job))
                if words.dynamo is not None:
                    every.append(dynamo(words.dynamo.absolute(), model, Path(made)))
            peers = [peer for peer in every if peer.mode in words.modes.split(",")]
            for peer in peers:
                for number, argv in enumerate(peer.beside):
                    machine.start_beside(f"{peer.name} worker {number}", argv, variables=peer.variables)
                machine.start_router(peer.name, peer.argv, peer.port, variables=peer.variables)
                if peer.exact:
                    until_exact(peer.port)
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
                for peer in (each for each in peers[shift:] + peers[:shift] if applies(case, each)):
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
