"""The router as a process, before simulated engines that are processes too."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcserve.discovery import write_record
from hpcserve.engines import adapter_for
from hpcserve.nouns import Endpoint, Handoff, Role
from hpcserve.wire import encode_record, encode_yaml
from tests import synthetic

ENGINE_KEY = "sk-engine"
HEADERS = {"Authorization": "Bearer sk-job"}
BODY = {"model": "tiny", "prompt": "The longest river is the", "max_tokens": 6, "temperature": 0}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(wanted: Callable[[], Any], *, within_s: float = 20.0) -> Any:
    end_s = time.monotonic() + within_s
    while True:
        try:
            found = wanted()
        except (httpx.HTTPError, OSError, ValueError):
            found = None
        if found:
            return found
        assert time.monotonic() < end_s, "it did not come to this"
        time.sleep(0.02)


class Job:
    """A job directory with two simulated engines, and what starts a router on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        for folder in ("keys", "endpoints", "heartbeats"):
            (directory / folder).mkdir()
        (directory / "keys" / "api.key").write_text("sk-job\n")
        (directory / "keys" / "engine.key").write_text(ENGINE_KEY + "\n")
        (directory / "plan.json").write_bytes(encode_record(synthetic.plan()))
        (directory / "service.yaml").write_text(encode_yaml(synthetic.service(engine="sim", kv_lease_s=4)))
        self.log = (directory / "router.log").open("wb")

    def start_engine(self, role: Role, generation: str) -> subprocess.Popen[bytes]:
        port, side = free_port(), free_port()
        kind = "kv_producer" if role == Role.PREFILL else "kv_consumer"
        transfer = {
            "kv_connector": "NixlConnector",
            "kv_role": kind,
            "kv_connector_extra_config": {"kv_lease_duration": 4},
        }
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "hpcserve.simengine", "serve", "tiny", "--port", str(port)),
                *("--sim-kv-bytes-per-token", "23040", "--kv-transfer-config", json.dumps(transfer)),
            ],
            env=os.environ
            | {
                "VLLM_API_KEY": ENGINE_KEY,
                "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
                "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side),
            },
            stdout=self.log,
            stderr=self.log,
        )
        self.processes.append(process)
        until(lambda: httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200)
        endpoint = Endpoint(
            id=f"{role}-0",
            generation=generation,
            role=role,
            url=f"http://127.0.0.1:{port}",
            node="node01",
            pid=process.pid,
            model="tiny",
            engine="sim",
            engine_version="1",
            handoff=Handoff(
                kind="nixl-pull",
                connector="NixlConnector",
                connector_version="sim",
                block_size=32,
                kv_dtype="bfloat16",
                tensor_parallel=1,
                lease_s=4,
            ),
            max_model_len=2048,
            simulated=True,
        )
        write_record(self.directory / "endpoints" / f"{endpoint.id}.json", endpoint)
        return process

    def start_router(self, *words: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "hpcserve.router", "--job", str(self.directory), "--node", "node01"),
                *("--host", "127.0.0.1", "--port", str(self.port), *words),
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        self.processes.append(process)
        return process

    def ready(self) -> bool:
        return httpx.get(f"{self.url}/health").status_code == 200

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "router.state.json").read_text())
        return found

    def ask(self, **changes: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/v1/completions", headers=HEADERS, json=BODY | changes, timeout=20)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        self.log.close()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_from_start_to_end(job: Job) -> None:
    prefill = job.start_engine(Role.PREFILL, "p1")
    job.start_engine(Role.DECODE, "d1")
    router = job.start_router()
    until(job.ready)
    state = until(lambda: job.state() if job.state()["ready"] else None)
    assert state["waiting_for"] == []
    (proof,) = state["proofs"]
    assert proof["proved"]
    assert "8 tokens equal" in proof["reason"]
    address = json.loads((job.directory / "router.json").read_text())
    assert (address["url"], address["pid"]) == (job.url, router.pid)
    decode_url = json.loads((job.directory / "endpoints" / "decode-0.json").read_text())["url"]
    direct = httpx.post(
        f"{decode_url}/v1/completions", headers={"Authorization": f"Bearer {ENGINE_KEY}"}, json=BODY
    ).json()["choices"][0]["text"]
    answer = job.ask()
    assert answer.json()["choices"][0]["text"] == direct
    assert answer.headers["x-hpcserve-route"] == "prefill-0>decode-0"
    counters = adapter_for("sim").read_counters(httpx.get(f"{decode_url}/metrics").text)
    assert counters.xfer_count == 2

    # a second router of the same job
    second = job.start_router()
    assert second.wait(timeout=10) == 7
    assert job.ask().status_code == 200

    # killed, it returns on the same address at once, with what was proved
    router.kill()
    router.wait()
    start_s = time.monotonic()
    router = job.start_router()
    until(lambda: job.ask().headers.get("x-hpcserve-route") == "prefill-0>decode-0")
    took_s = time.monotonic() - start_s
    assert took_s < 5, "it is well under a second on an idle machine"
    assert job.ready()

    # a worker dies and comes back as another
    prefill.kill()
    prefill.wait()
    answer = job.ask()
    assert answer.json()["choices"][0]["text"] == direct
    assert answer.headers["x-hpcserve-route"] == "decode-0"
    assert not job.ready()
    job.start_engine(Role.PREFILL, "p2")
    until(job.ready)
    assert job.ask().headers["x-hpcserve-route"] == "prefill-0>decode-0"

    # ended, it lets a stream finish
    with httpx.stream(
        "POST", f"{job.url}/v1/completions", headers=HEADERS, json=BODY | {"stream": True, "max_tokens": 400}
    ) as stream:
        lines = stream.iter_lines()
        next(lines)
        router.send_signal(signal.SIGTERM)
        rest = list(lines)
    assert rest[-2] == "data: [DONE]"
    assert router.wait(timeout=10) == 0
    log = (job.directory / "router.log").read_text()
    assert "request id=hpc-" in log
    assert "route=prefill-0>decode-0 status=200" in log
    assert "longest river" not in log


def test_a_decode_worker_that_is_stopped_does_not_hold_requests(job: Job) -> None:
    job.start_engine(Role.PREFILL, "p1")
    decode = job.start_engine(Role.DECODE, "d1")
    job.start_router()
    until(job.ready)
    wanted = job.ask().json()["choices"][0]["text"]
    for stream in (True, False):
        decode.send_signal(signal.SIGSTOP)
        start_s = time.monotonic()
        answer = job.ask(stream=stream)
        took_s = time.monotonic() - start_s
        decode.send_signal(signal.SIGCONT)
        assert answer.status_code == 200
        assert answer.headers["x-hpcserve-route"] == "prefill-0"
        assert 1.5 < took_s < 12  # half the lease is 2 s, and as long again where the counters are asked
        if not stream:
            assert answer.json()["choices"][0]["text"] == wanted
    metrics = httpx.get(f"{job.url}/metrics").text
    assert "hpcserve_router_lease_drops_total 2.0" in metrics
    assert "hpcserve_router_in_flight_requests 0.0" in metrics


def test_what_is_wrong_with_a_job_directory_is_said_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "hpcserve.router", "--job", str(tmp_path), "--node", "n"),
            *("--host", "127.0.0.1", "--port", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 7
    assert done.stderr.count("\n") == 1
    assert "plan.json" in done.stderr
