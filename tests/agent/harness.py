"""A real job directory on this host, with its agents as child processes of the test; no launcher between."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from hpcserve.agent.processes import ProcessRecord, session_members
from hpcserve.deploy import plan_service, prepare, write_job
from hpcserve.nouns import Endpoint, GrantedNode, JobFailure, Noun, Plan, WorkerState
from hpcserve.wire import UnreadableRecordError, decode_record

BRISK = "notice_s=0.3, watch_s=0.2, plan_poll_s=0.1, poll_s=0.1"
"""The routers of these jobs have no clients, so nobody needs the time to notice that a worker drains."""

N = TypeVar("N", bound=Noun)
T = TypeVar("T")

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 2048,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}

SERVICE = """
schema: hpcserve.service/1
name: {name}
model: {model}
served_name: tiny
engine: sim
mode: disaggregated
distance: same-leaf
partition: null
time: 1:00:00
pools:
  - role: prefill
    workers: 1
  - role: decode
    workers: 1
args: {args}
slo:
  ttft_ms: 1000.0
  tpot_ms: 150.0
workload:
  input_tokens: 512
  output_tokens: 16
"""


def wait_for(what: str, look: Callable[[], T | None], *, within_s: float = 40.0) -> T:
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {within_s} s")


@dataclass
class LocalJob:
    directory: Path
    agents: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @classmethod
    def make(
        cls, folder: Path, *, name: str = "tiny", args: tuple[str, ...] = (), measured: Path | None = None
    ) -> "LocalJob":
        model = folder / "model"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps(CONFIG))
        service = folder / f"{name}.yaml"
        service.write_text(SERVICE.format(name=name, model=model, args=json.dumps(args)))
        planned = plan_service(service, site="local", measured=measured)
        prepared = write_job(prepare(planned, launcher="local", jobs_dir=folder / "jobs"))
        return cls(directory=prepared.directory)

    def record(self, kind: type[N], *path: str) -> N | None:
        try:
            return decode_record(kind, self.directory.joinpath(*path).read_bytes())
        except (FileNotFoundError, UnreadableRecordError):
            return None

    @property
    def nodes(self) -> tuple[str, ...]:
        asked = self.record(Plan, "plan.asked.json")
        assert asked is not None
        return asked.nodes

    def start(self, node: str, *, pace: str = "", **environment: str) -> None:
        """As agent.sh does; `pace`: other waits than a test's brisk ones, as arguments of Pace."""
        patched = (
            "import sys, hpcserve.agent.command_line as agent\nfrom hpcserve.agent.pace import Pace\n"
            f"agent.Pace = lambda: Pace(**{{**dict({BRISK}), **dict({pace})}})\nsys.exit(agent.main(sys.argv[1:]))"
        )
        nodes = self.nodes
        head = ["--head"] if node == nodes[0] else []
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
        with (self.directory / "logs" / f"agent.{node}.log").open("ab") as log:
            self.agents[node] = subprocess.Popen(
                [
                    *(sys.executable, "-c", patched, "--job", str(self.directory)),
                    *("--node", node, "--nodes", str(len(nodes)), *head),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**kept, "HPCSERVE_JOB": str(self.directory), **environment},
            )

    def start_all(self, **environment: str) -> None:
        for node in self.nodes:
            self.start(node, **environment)

    def end_leftovers(self, *, code: int = 0) -> None:
        """As agent.sh does at its end; `code` is the exit code that is expected."""
        for node in self.nodes:
            argv = [
                sys.executable,
                "-m",
                "hpcserve.agent",
                "--job",
                str(self.directory),
                "--node",
                node,
                "--end-leftovers",
            ]
            assert subprocess.run(argv, check=False, capture_output=True, timeout=30).returncode == code

    def kill_agent(self, node: str) -> None:
        self.agents[node].kill()
        self.agents.pop(node).wait()

    def stop_all(self, *, within_s: float = 40.0) -> dict[str, int]:
        for agent in self.agents.values():
            agent.send_signal(signal.SIGTERM)
        return {node: self.agents.pop(node).wait(within_s) for node in list(self.agents)}

    def endpoint(self, worker: str) -> Endpoint | None:
        return self.record(Endpoint, "endpoints", f"{worker}.json")

    def state(self, worker: str) -> WorkerState | None:
        return self.record(WorkerState, "workers", f"{worker}.state.json")

    def process(self, name: str) -> ProcessRecord | None:
        return self.record(ProcessRecord, "workers", f"{name}.pid")

    def node(self, name: str) -> GrantedNode | None:
        return self.record(GrantedNode, "nodes", f"{name}.json")

    def failure(self) -> JobFailure | None:
        return self.record(JobFailure, "failed.json")

    def phase(self, worker: str) -> str:
        state = self.state(worker)
        return "none" if state is None else state.phase

    def await_ready(self, *workers: str, within_s: float = 60.0) -> None:
        names = workers or ("prefill-0", "decode-0")
        try:
            wait_for(
                f"{names} ready",
                lambda: all(self.phase(name) == "ready" and self.endpoint(name) for name in names),
                within_s=within_s,
            )
        except AssertionError:
            for log in sorted((self.directory / "logs").iterdir()):
                print(f"=== {log.name}\n{log.read_text(errors='replace')[-3000:]}")  # noqa: T201 - why it failed
            raise

    def new_generation(self, worker: str, old: str) -> Endpoint:
        def look() -> Endpoint | None:
            found = self.endpoint(worker)
            return found if found is not None and found.generation != old else None

        return wait_for(f"a new generation of {worker}", look)

    def living(self) -> dict[int, str]:
        """Every process of this machine that carries the job's mark."""
        mark = f"HPCSERVE_JOB={self.directory}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (OSError, ValueError):
                continue
        return found

    def end(self) -> None:
        """Whatever the test left."""
        for agent in self.agents.values():
            agent.kill()
            agent.wait()
        for path in (self.directory / "workers").glob("*.pid"):
            record = decode_record(ProcessRecord, path.read_bytes())
            for pid in session_members(record.pid):
                os.kill(pid, signal.SIGKILL)
