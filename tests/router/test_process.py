"""The router as a process, before simulated engines that are processes too."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

from hpcserve.engines import adapter_for
from hpcserve.nouns import Role
from tests.router.processes import BODY, ENGINE_KEY, HEADERS, Job, until


def test_from_start_to_end(job: Job) -> None:
    prefill = job.start_engine(Role.PREFILL, "p1")
    job.start_engine(Role.DECODE, "d1")
    router = job.start_router()
    until(job.ready)
    state = until(lambda: job.state() if job.state()["ready"] else None)
    assert state["waiting_for"] == []
    (proof,) = state["proofs"]
    assert proof["proved"]
    assert "in 8 transfers, 64 tokens equal" in proof["reason"]
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
    assert counters.xfer_count == 9

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
