"""A job directory with simulated engines and a router on it, all processes of this host; for tests and benchmarks."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import httpx

from hpcserve.discovery import Heart, write_record
from hpcserve.nouns import Endpoint, Role
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
        except (httpx.HTTPError, HTTPException, OSError, ValueError):
            found = None
        if found:
            return found
        assert time.monotonic() < end_s, "it did not come to this"
        time.sleep(0.02)


def _is_healthy(port: int) -> bool:
    """Without httpx, whose every client reads the certificates of the world anew."""
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    finally:
        connection.close()


class Job:
    """A job directory with two simulated engines, and what starts a router on it."""

    def __init__(self, directory: Path, *, lease_s: int = 4) -> None:
        self.directory = directory
        self.lease_s = lease_s
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        for folder in ("keys", "endpoints", "heartbeats"):
            (directory / folder).mkdir()
        (directory / "keys" / "api.key").write_text("sk-job\n")
        (directory / "keys" / "engine.key").write_text(ENGINE_KEY + "\n")
        (directory / "plan.json").write_bytes(encode_record(synthetic.plan()))
        (directory / "service.yaml").write_text(encode_yaml(synthetic.service(engine="sim", kv_lease_s=lease_s)))
        self.log = (directory / "router.log").open("wb")

    async def beat(self) -> None:
        """The heartbeat of the workers' node; runs until it is cancelled."""
        heart = Heart(self.directory, node="node01", generation="1")
        while True:
            heart.beat()
            await asyncio.sleep(heart.period_s)

    def start_engine(
        self,
        role: Role,
        generation: str,
        *words: str,
        model: str = "tiny",
        events: bool = False,
        number: int = 0,
        ports: tuple[int, int] | None = None,
        within_s: float = 20.0,
    ) -> subprocess.Popen[bytes]:
        """Start one and announce it. `ports`: of its HTTP and side channel; None: any two. `within_s`: it may take."""
        port, side = ports or (free_port(), free_port())
        told, repeated = (free_port(), free_port()) if events else (None, None)
        if events:
            config = {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": f"tcp://*:{told}",
                "replay_endpoint": f"tcp://*:{repeated}",
            }
            words = (*words, "--kv-events-config", json.dumps(config), "--sim-model-tokenizer")
        kind = "kv_producer" if role == Role.PREFILL else "kv_consumer"
        transfer = {
            "kv_connector": "NixlConnector",
            "kv_role": kind,
            "kv_connector_extra_config": {"kv_lease_duration": self.lease_s},
        }
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "hpcserve.simengine", "serve", model, "--port", str(port)),
                *("--served-model-name", "tiny"),
                *("--sim-kv-bytes-per-token", "23040", "--kv-transfer-config", json.dumps(transfer)),
                *words,
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
        until(lambda: self._serves(process, port), within_s=within_s)
        endpoint = Endpoint(
            id=f"{role}-{number}",
            generation=generation,
            role=role,
            url=f"http://127.0.0.1:{port}",
            node="node01",
            pid=process.pid,
            model="tiny",
            engine="sim",
            engine_version="1",
            handoff=synthetic.handoff(connector_version="sim", lease_s=self.lease_s),
            max_model_len=2048,
            events_url=f"tcp://127.0.0.1:{told}" if events else None,
            events_replay_url=f"tcp://127.0.0.1:{repeated}" if events else None,
            simulated=True,
        )
        write_record(self.directory / "endpoints" / f"{endpoint.id}.json", endpoint)
        return process

    def _serves(self, process: subprocess.Popen[bytes], port: int) -> bool:
        said = f"it ended with {process.poll()}; the log: {self.directory / 'router.log'}"
        assert process.returncode is None, said
        return _is_healthy(port)

    def start_router(self, *words: str, door: socket.socket | None = None) -> subprocess.Popen[bytes]:
        """`door`: the socket to listen on, which outlives the router, as the agent's does."""
        inherited = () if door is None else (door.fileno(),)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "hpcserve.router", "--job", str(self.directory), "--node", "node01"),
                *("--host", "127.0.0.1", "--port", str(self.port), *words),
                *(word for number in inherited for word in ("--socket", str(number))),
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
            pass_fds=inherited,
        )
        self.processes.append(process)
        return process

    def engine_url(self, role: Role) -> str:
        endpoint: dict[str, str] = json.loads((self.directory / "endpoints" / f"{role}-0.json").read_text())
        return endpoint["url"]

    def ready(self) -> bool:
        return _is_healthy(self.port)

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
