"""The simulated engine as a process: start, pace, memory, end."""

import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hpcserve.engines import read_counters

KV_BYTES = 1000
REMOTE = {"do_remote_decode": True, "do_remote_prefill": False}


@contextmanager
def engine(
    *words: str, role: str = "", policy: str = "fail", side: int = 0
) -> Iterator[tuple[httpx.Client, subprocess.Popen[bytes]]]:
    """One engine on ports of its own, unless `side`, that of its handoffs, is given."""
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        port, side = one.getsockname()[1], side or two.getsockname()[1]
    argv = [sys.executable, "-m", "hpcserve.simengine", "serve", "m", "--port", str(port)]
    argv += ["--sim-kv-bytes-per-token", str(KV_BYTES), "--max-model-len", "2000", *words]
    if role:
        extra = {"kv_lease_duration": 5}
        config = {"kv_connector": "NixlConnector", "kv_role": role, "kv_load_failure_policy": policy}
        argv += ["--kv-transfer-config", json.dumps({**config, "kv_connector_extra_config": extra})]
    env = {
        **os.environ,
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": str(side),
    }
    process = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30)
    try:
        _await_health(client, process)
        yield client, process
    finally:
        client.close()
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise


def _await_health(client: httpx.Client, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"the engine ended with {process.returncode} before it answered")
        try:
            if client.get("/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.02)
    pytest.fail("the engine does not answer")


def complete(client: httpx.Client, length: int, start: int = 10, **body: Any) -> httpx.Response:
    prompt = list(range(start, start + length))
    return client.post("/v1/completions", json={"prompt": prompt, "max_tokens": 4, "ignore_eos": True, **body})


def prefill_seconds(client: httpx.Client) -> float:
    """Sum of all times to first token."""
    lines = client.get("/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith("vllm:time_to_first_token_seconds_sum")).split()[-1])


def hand_off(prefill: httpx.Client, decode: httpx.Client, length: int, start: int = 10) -> httpx.Response:
    first = complete(prefill, length, start, max_tokens=1, kv_transfer_params=REMOTE)
    return complete(decode, length, start, kv_transfer_params=first.json()["kv_transfer_params"])


def test_sigterm_ends_it_at_once_with_zero() -> None:
    with engine("--sim-decode-ms-per-token", "100") as (client, process):
        with client.stream("POST", "/v1/completions", json={"prompt": [5], "max_tokens": 500, "stream": True}) as reply:
            next(reply.iter_bytes())
            start_s = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=5) == 0
        assert time.monotonic() - start_s < 3


def test_taken_port_is_a_sentence_and_a_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        argv = [sys.executable, "-m", "hpcserve.simengine", "serve", "m", "--sim-kv-bytes-per-token", "1000"]
        argv += ["--port", str(taken.getsockname()[1])]
        done = subprocess.run(argv, capture_output=True, check=False, timeout=20)
    assert done.returncode == 1
    assert b"address already in use" in done.stderr.lower()
    assert b"Traceback" not in done.stderr


def test_wrong_words_are_a_sentence_and_exit_code_two() -> None:
    argv = [sys.executable, "-m", "hpcserve.simengine", "serve", "m"]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=20)
    assert done.returncode == 2
    assert b"--sim-kv-bytes-per-token" in done.stderr
    assert b"Traceback" not in done.stderr


def test_prefill_and_decode_take_the_time_that_is_set() -> None:
    with engine("--sim-prefill-ms-per-token", "1", "--sim-decode-ms-per-token", "20") as (client, _):
        start_s = time.monotonic()
        complete(client, 200, max_tokens=6)
        took_s = time.monotonic() - start_s
        assert 0.29 <= took_s < 0.9
        before = prefill_seconds(client)
        complete(client, 200, max_tokens=6)  # all but the last 8 tokens are cached
        assert 0.007 <= prefill_seconds(client) - before < 0.15


def test_transfer_takes_bytes_over_rate() -> None:
    rate = json.dumps({"127.0.0.1": 0.001})
    with (
        engine(role="kv_producer") as (prefill, _),
        engine("--sim-gb-per-s", rate, role="kv_consumer") as (decode, _),
    ):
        assert hand_off(prefill, decode, 300).status_code == 200
        counters = read_counters(decode.get("/metrics").text)
        assert counters.xfer_bytes == 320 * KV_BYTES
        assert 0.319 <= counters.xfer_seconds < 0.5


def test_lease_is_prolonged_while_a_pull_waits() -> None:
    rate = json.dumps({"*": 0.00004})  # 320 tokens take 8 s, the lease is 5 s
    with (
        engine(role="kv_producer") as (prefill, _),
        engine("--sim-gb-per-s", rate, role="kv_consumer") as (decode, _),
    ):
        assert hand_off(prefill, decode, 300).status_code == 200
        counters = read_counters(prefill.get("/metrics").text)
        assert (counters.kv_expired, counters.late_notices) == (0, 0)


@pytest.mark.parametrize(("policy", "status"), [("fail", 500), ("recompute", 200)])
def test_dead_prefill_engine(policy: str, status: int) -> None:
    with engine() as (reference, _), engine(role="kv_consumer", policy=policy) as (decode, _):
        with engine(role="kv_producer") as (prefill, process):
            hand_off(prefill, decode, 40, start=900)
            first = complete(prefill, 40, max_tokens=1, kv_transfer_params=REMOTE).json()
            process.kill()
            process.wait()
        start_s = time.monotonic()
        answer = complete(decode, 40, kv_transfer_params=first["kv_transfer_params"])
        assert time.monotonic() - start_s < 4  # an engine that was met: no handshake time-out of 5 s
        assert answer.status_code == status
        if status == 200:
            local = complete(reference, 40).json()["choices"][0]["text"]
            assert answer.json()["choices"][0]["text"] == local


def test_an_engine_that_has_the_address_of_a_dead_one_is_not_taken_for_it() -> None:
    """As with NIXL, whose agent reads the memory of the process that it met."""
    with engine(role="kv_consumer") as (decode, _):
        with engine(role="kv_producer") as (prefill, process):
            hand_off(prefill, decode, 40, start=900)
            params = complete(prefill, 40, max_tokens=1, kv_transfer_params=REMOTE).json()["kv_transfer_params"]
            process.kill()
            process.wait()
        with engine(role="kv_producer", side=params["remote_port"]) as (prefill, _):
            for start in (900, 1200):
                complete(prefill, 200, start, max_tokens=1, kv_transfer_params=REMOTE)
            assert complete(decode, 40, kv_transfer_params=params).status_code == 500


def test_unknown_prefill_engine_costs_the_handshake_timeout() -> None:
    params = {
        "do_remote_prefill": True,
        "remote_engine_id": "nobody",
        "remote_request_id": "r",
        "remote_host": "127.0.0.1",
        "remote_port": 1,
        "remote_block_ids": [[1, 2]],
        "tp_size": 1,
    }
    with engine(role="kv_consumer") as (decode, _):
        start_s = time.monotonic()
        assert complete(decode, 40, kv_transfer_params=params).status_code == 500
        assert 4.9 <= time.monotonic() - start_s < 10


@pytest.mark.parametrize("blocks", [None, [], [[]], [1, 2], [["1"]], [[1]]])
def test_malformed_handoffs_kill_it(blocks: Any) -> None:
    with engine(role="kv_producer") as (prefill, _), engine(role="kv_consumer") as (decode, process):
        params = complete(prefill, 40, max_tokens=1, kv_transfer_params=REMOTE).json()["kv_transfer_params"]
        answer = complete(decode, 40, kv_transfer_params={**params, "remote_block_ids": blocks})
        assert answer.status_code == 500
        assert "EngineCore" in answer.json()["error"]["message"]
        assert process.wait(timeout=5) == 1


def test_more_work_than_blocks_is_served_in_turn() -> None:
    words = ("--kv-cache-memory-bytes", str(KV_BYTES * 32 * 70), "--sim-decode-ms-per-token", "0.2")
    with engine(*words) as (client, _), engine() as (roomy, _):

        def ask(number: int) -> bool:
            asked = {"start": 40 * number, "max_tokens": 600}
            tight, free = (complete(one, 40, **asked).json()["choices"][0]["text"] for one in (client, roomy))
            return bool(tight == free)

        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            assert all(threads.map(ask, range(8)))
        text = client.get("/metrics").text
        preempted = next(line for line in text.splitlines() if line.startswith("vllm:num_preemptions_total{"))
        assert float(preempted.split()[-1]) > 0
        assert 'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.0' in text


def test_memory_stays_bounded() -> None:
    with engine("--kv-cache-memory-bytes", str(KV_BYTES * 32 * 100)) as (client, process):

        def resident() -> int:
            pages = Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")

        for number in range(200):
            complete(client, 500, start=number * 7)
        before = resident()
        for number in range(600):
            complete(client, 500, start=5000 + number * 7)
        assert resident() - before < 8 * 2**20
