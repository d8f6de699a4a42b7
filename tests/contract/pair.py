"""A prefill and a decode engine on the loopback interface, simulated or real, started as the adapter says."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from hpcserve.engines import EngineCounters, adapter_for
from hpcserve.nouns import EngineFacts, GrantedNode, PlannedWorker, Rank, Role, Service, Site
from hpcserve.provision import MODEL_NAMES, cache_directory, engine_prefix, model_directory
from hpcserve.site import load_service, load_site

Kind = Literal["sim", "vllm"]

KEY = "a key of the contract tests"
LEASE_S = 6
MODEL_LEN = 2048
BLOCK_SIZE = 32
KV_BYTES_PER_TOKEN = 23040  # SmolLM2-135M in bf16: 2 x 30 layers x 3 heads x 64 x 2 bytes
START_TIMEOUT_S = {"sim": 20.0, "vllm": 240.0}
REMOTE_DECODE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"

_SERVICE = """
schema: hpcserve.service/1
name: contract
model: {model}
served_name: smollm2
engine: {engine}
mode: disaggregated
partition: null
time: 0:30:00
kv_lease_s: {lease_s}
args: [--max-model-len, "{length}", --max-num-seqs, "8", --block-size, "{block_size}", --kv-cache-memory-bytes, "{kv}"]
pools:
  - {{role: prefill, workers: 1}}
  - {{role: decode, workers: 1}}
slo: {{ttft_ms: 1000.0, tpot_ms: 150.0}}
workload: {{input_tokens: 512, output_tokens: 16}}
"""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One running engine."""

    url: str
    process: subprocess.Popen[bytes]
    client: httpx.Client

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        return self.client.post(path, json=body, headers=headers)

    def counters(self) -> EngineCounters:
        return adapter_for("vllm").read_counters(self.client.get("/metrics").text)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two of them, of one kind."""

    kind: Kind
    prefill: Engine
    decode: Engine

    def hand_off(self, path: str, body: dict[str, Any], **decode: Any) -> tuple[dict[str, Any], httpx.Response]:
        """Prefill, then decode with these keys on top; returns what was handed over, and the answer."""
        asked = {"temperature": 0, **body}
        first = self.prefill.post(path, {**asked, "max_tokens": 1, "kv_transfer_params": REMOTE_DECODE})
        assert first.status_code == 200, first.text
        params = first.json()["kv_transfer_params"]
        change = decode.pop("change", {})
        return params, self.decode.post(path, {**asked, **decode, "kv_transfer_params": {**params, **change}})


def started_pair(kind: Kind, logs: Path) -> Iterator[Pair]:
    """Start a pair, hand it out, stop it."""
    processes = [_start(kind, role, logs) for role in (Role.PREFILL, Role.DECODE)]
    try:
        prefill, decode = (_await_health(kind, url, process, log) for url, process, log in processes)
        yield Pair(kind=kind, prefill=prefill, decode=decode)
        prefill.client.close()
        decode.client.close()
    finally:
        for _, process, _ in processes:
            process.terminate()
        for _, process, _ in processes:
            process.wait(timeout=30)


def _start(kind: Kind, role: Role, logs: Path) -> tuple[str, subprocess.Popen[bytes], Path]:
    cache = cache_directory(os.environ)
    model = model_directory(MODEL_NAMES[0], cache)
    if kind == "vllm" and not (model.is_dir() and engine_prefix(cache).is_dir()):
        pytest.fail("the vLLM environment or the model is missing: `make setup` brings both")
    site = _site()
    service = _service(site, kind, str(model))
    port, side_port = _free_ports(2)
    rank = Rank(node="local1", gpus=(0,), nics=("lo",), cores=(0,))
    worker = PlannedWorker(
        id=f"{role.value}-0", role=role, ranks=(rank,), tensor_parallel=1, port=port, side_channel_port=side_port
    )
    command = adapter_for(kind).command(
        worker=worker, service=service, site=site, node=_node(kind), model_dir=str(model)
    )
    argv = list(command.argv)
    if kind == "vllm":
        argv[0] = str(engine_prefix(cache) / "bin" / argv[0])
    else:
        argv[0] = sys.executable
        argv += ["--sim-kv-bytes-per-token", str(KV_BYTES_PER_TOKEN)]
    env = {**os.environ, **command.env, command.key_variable: KEY}
    log = logs / f"{role.value}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=subprocess.STDOUT)
    return f"http://127.0.0.1:{port}", process, log


def _await_health(kind: str, url: str, process: subprocess.Popen[bytes], log: Path) -> Engine:
    client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {KEY}"}, timeout=120, trust_env=False)
    end = time.monotonic() + START_TIMEOUT_S[kind]
    while time.monotonic() < end and process.poll() is None:
        try:
            if client.get("/health").status_code == 200:
                return Engine(url=url, process=process, client=client)
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError(f"{kind} is not healthy: " + log.read_text(errors="replace")[-2000:])


def _site() -> Site:
    path = Path(__file__).parents[2] / "site_configs" / "local.yaml"
    return load_site(path.read_text(encoding="utf-8"), source=str(path))


def _service(site: Site, kind: str, model: str) -> Service:
    text = _SERVICE.format(
        model=model, engine=kind, lease_s=LEASE_S, length=MODEL_LEN, block_size=BLOCK_SIZE, kv=134217728
    )
    return load_service(text, source="contract.yaml", site=site)


def _node(kind: Kind) -> GrantedNode:
    facts = EngineFacts(
        name=kind,
        version="0.32.0",
        platform="cpu" if kind == "vllm" else "simulated",
        kv_connectors=("NixlConnector",),
        nixl_version=None,
    )
    return GrantedNode(
        name="local1",
        hostname="localhost",
        control_address="127.0.0.1",
        data_address="127.0.0.1",
        cores=(0,),
        gpus=(),
        engine=facts,
        ports=(),
        agent_pid=1,
        generation="1",
    )


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
