"""A whole service on this host, with the simulated engine: no Slurm, no root, nothing stood in for."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from hpcserve.cli.program import run
from hpcserve.nouns import JobState
from hpcserve.scheduler.processes import marked
from hpcserve.wire import decode_record
from tests.deploy.conftest import write_model, write_service, write_site

HPCSERVE = Path(sys.executable).with_name("hpcserve")
Captured = pytest.CaptureFixture[str]


def hpcserve(*words: str) -> str:
    """What one command printed; it must have succeeded."""
    done = subprocess.run([HPCSERVE, *words], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobState]:
    """One service for all tests here, which leave it as they found it."""
    folder = tmp_path_factory.mktemp("served")
    write_model(folder)
    words = ("--site", str(write_site(folder)), "--wait", "--timeout", "90", "--json")
    state = decode_record(JobState, hpcserve("submit", str(write_service(folder)), *words).encode())
    yield state
    hpcserve("cancel", state.handle.directory)
    assert marked("HPCSERVE_JOB", state.handle.directory) == frozenset()


def test_a_service_is_ready_answers_shows_its_logs_and_ends(served: JobState, capsys: Captured) -> None:
    job = served.handle.directory
    assert (served.phase, served.simulated) == ("ready", True)
    assert {worker.phase for worker in served.workers} == {"ready"}
    assert run(["wait", job]) == 0
    assert f"{served.url}\n" in capsys.readouterr().out

    assert run(["url", job]) == 0
    assert capsys.readouterr().out == f"{served.url}\n"
    assert run(["url", job, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["openai_base_url"] == f"{served.url}/v1"
    assert run(["url", job, "--env"]) == 0
    exports = capsys.readouterr().out
    printed = subprocess.run(
        ["bash", "-c", f'{exports}\necho "$OPENAI_BASE_URL $OPENAI_API_KEY"'],
        capture_output=True,
        text=True,
        check=True,
    )
    base, key = printed.stdout.split()
    listed = httpx.get(f"{base}/models", headers={"Authorization": f"Bearer {key}"}, timeout=20)
    assert listed.json()["data"][0]["id"] == "smollm2"

    assert run(["logs", job, "decode-0"]) == 0
    assert capsys.readouterr().out.startswith("simulated engine")


def test_logs_are_followed_until_ctrl_c(served: JobState) -> None:
    log = Path(served.handle.directory, "logs", "decode-0.log")
    follow = subprocess.Popen(
        [HPCSERVE, "logs", served.handle.directory, "-f", "-n", "0"], stdout=subprocess.PIPE, text=True
    )
    with follow, ExitStack() as stack:
        stack.callback(follow.kill)
        assert follow.stdout is not None
        lines = iter(follow.stdout.readline, "")
        assert "==> router.log <==\n" in lines
        time.sleep(1)
        with log.open("a") as file:
            file.write("something new\n")
        assert "decode-0: something new\n" in lines  # others write as well
        follow.send_signal(signal.SIGINT)
        assert follow.wait(timeout=20) == 130


def test_a_router_that_does_not_answer_is_never_called_ready(served: JobState, capsys: Captured) -> None:
    pid = json.loads(Path(served.handle.directory, "router.json").read_text())["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert run(["status", served.handle.directory, "--json"]) == 0
        state = decode_record(JobState, capsys.readouterr().out.encode())
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (state.phase, state.reason) == ("degraded", "the router does not answer")


def test_a_killed_leader_takes_its_agents_and_workers_with_it(served: JobState, capsys: Captured) -> None:
    """The last test here: it ends the service."""
    job = served.handle.directory
    os.kill(int(served.handle.id.split("-")[1]), signal.SIGKILL)
    end_s = time.monotonic() + 60
    while left := marked("HPCSERVE_JOB", job):
        assert time.monotonic() < end_s, left
        time.sleep(0.2)
    assert run(["status", job]) == 0
    assert "its leader was killed before it could end the job" in capsys.readouterr().out
