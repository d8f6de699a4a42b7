"""A real service (vLLM, NIXL, Slurm) and what tests ask of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import httpx

from hpcserve.engines import EngineCounters, adapter_for
from hpcserve.nouns import Endpoint, JobState, Plan, Role
from hpcserve.wire import decode_record

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
HPCSERVE = Path(sys.executable).with_name("hpcserve")
SERVICE = ROOT / "docs" / "examples" / "smollm2.yaml"
READY_WITHIN_S = 240


def hpcserve(*words: str | Path, within_s: float = 120) -> str:
    """Run the command line as a user would; the test fails with its words when it fails."""
    done = subprocess.run([HPCSERVE, *map(str, words)], capture_output=True, text=True, timeout=within_s, check=False)
    assert done.returncode == 0, (
        f"hpcserve {' '.join(map(str, words))} exited {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def slurm(*words: str) -> str:
    """What one of Slurm's commands prints, without the blanks around it."""
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def wait_for(what: str, ask: Callable[[], T | None], *, within_s: float, every_s: float = 0.2) -> T:
    """Ask until the answer is not None (or false); fails naming what did not happen."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(every_s)
    raise AssertionError(f"{what} did not happen in {within_s:g} s")


@dataclass(kw_only=True)
class Served:
    """A running service and what tests ask of it."""

    directory: Path
    model: str
    url: str

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def key(self) -> str:
        return (self.directory / "keys" / "api.key").read_text().strip()

    @property
    def engine_key(self) -> str:
        return (self.directory / "keys" / "engine.key").read_text().strip()

    @property
    def plan(self) -> Plan:
        return decode_record(Plan, (self.directory / "plan.json").read_bytes())

    def state(self) -> JobState:
        return decode_record(JobState, hpcserve("status", self.directory, "--json").encode())

    def endpoints(self) -> dict[Role, Endpoint]:
        found = {}
        for path in (self.directory / "endpoints").glob("*.json"):
            endpoint = decode_record(Endpoint, path.read_bytes())
            found[endpoint.role] = endpoint
        return found

    def counters(self, role: Role) -> EngineCounters:
        text = httpx.get(f"{self.endpoints()[role].url}/metrics", timeout=10).text
        return adapter_for("vllm").read_counters(text)

    def complete(self, prompt: str, *, timeout_s: float = 120, **body: Any) -> httpx.Response:
        """One completion through the router."""
        return httpx.post(
            f"{self.url}/v1/completions",
            headers={"Authorization": f"Bearer {self.key}"},
            json={"model": self.model, "prompt": prompt, "temperature": 0, **body},
            timeout=timeout_s,
        )

    def chat(self, question: str, **body: Any) -> str:
        """The answer to one question through the router."""
        answer = httpx.post(
            f"{self.url}/v1/chat/completions",
            headers={"Authorization": f"Bearer {self.key}"},
            json={
                "model": self.model,
                "messages": [{"role": "user", "content": question}],
                "temperature": 0,
                "max_tokens": 24,
                **body,
            },
            timeout=120,
        )
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])

    def complete_on(self, role: Role, prompt: str, **body: Any) -> dict[str, Any]:
        """One completion straight from a worker, without any handoff, and without leaving it a prefix to reuse."""
        answer = httpx.post(
            f"{self.endpoints()[role].url}/v1/completions",
            headers={"Authorization": f"Bearer {self.engine_key}"},
            json={"model": self.model, "prompt": prompt, "temperature": 0, "cache_salt": uuid4().hex, **body},
            timeout=120,
        )
        answer.raise_for_status()
        decoded: dict[str, Any] = answer.json()
        return decoded

    def is_whole(self) -> bool:
        """Whether every worker serves and the router has proved what it needs."""
        state = json.loads(hpcserve("status", self.directory, "--json"))
        return bool(state["phase"] == "ready")

    def heal(self, *, within_s: float) -> float:
        """Wait until the service is whole; seconds that took."""
        start = time.monotonic()
        wait_for("the service being whole again", lambda: self.is_whole() or None, within_s=within_s)
        return time.monotonic() - start


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Everything that real tests share."""

    jobs: Path
    site: str


def submit(parts: Parts, service: Path, *words: str, model: str) -> Served:
    """Submit, wait until ready, and hand over what is needed to use it."""
    handle = json.loads(hpcserve("submit", service, "--site", parts.site, "--jobs-dir", parts.jobs, "--json", *words))
    directory = Path(handle["directory"])
    try:
        hpcserve("wait", directory, "--timeout", str(READY_WITHIN_S), within_s=READY_WITHIN_S + 20)
    except BaseException:
        for log in sorted((directory / "logs").glob("*")):
            print(f"=== {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)  # noqa: T201 - why it failed
        subprocess.run([HPCSERVE, "cancel", directory], check=False, timeout=60)
        raise
    return Served(directory=directory, model=model, url=hpcserve("url", directory).strip().removesuffix("/v1"))


def cancel(directory: Path) -> None:
    """End a job and see that none of its processes is left."""
    hpcserve("cancel", directory)
    wait_for("the end of the job's processes", lambda: not pids_of(directory), within_s=60)


def router_pid(directory: Path) -> int:
    """The router's process, from the address it wrote."""
    return int(json.loads((directory / "router.json").read_text())["pid"])


def pids_of(directory: Path) -> list[int]:
    """Processes of this machine that name the job directory in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in words and b"pytest" not in words:
                found.append(int(entry.name))
    return found


def group_of(pid: int) -> int:
    """The process group of a worker: its engine's processes all together."""
    return os.getpgid(pid)


def kill_group(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    os.killpg(group_of(pid), number)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Greedy tokens of one prompt, with the two best log-probabilities at each place."""

    tokens: list[str]
    best_two: list[list[float]]


def tokens_of(answer: dict[str, Any]) -> Reference:
    logprobs = answer["choices"][0]["logprobs"]
    return Reference(
        tokens=logprobs["tokens"],
        best_two=[sorted(places.values(), reverse=True)[:2] for places in logprobs["top_logprobs"]],
    )


def assert_right_or_clean_error(answer: httpx.Response, reference: Reference) -> bool:
    """Whether the answer is right; fails where it is neither right nor an OpenAI-style error."""
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["message"]
        assert {"type", "code"} <= error.keys()
        return False
    found = tokens_of(answer.json()).tokens
    for place, (token, wanted) in enumerate(zip(found, reference.tokens, strict=True)):
        if token != wanted:
            best, second = reference.best_two[place]
            assert best == second, f"token {place} is {token!r}, not {wanted!r}, and the two were no tie"
            break
    return True
