"""A whole service on a real Slurm, with the simulated engine: run inside `slurm/cluster exec`."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from hpcserve.cli.program import run
from hpcserve.nouns import Endpoint, JobHandle, JobState
from hpcserve.wire import decode_record
from tests.deploy.conftest import model, service_file
from tests.golden.cases import ROOT
from tests.real.harness import slurm

__all__ = ["model", "service_file"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]
Captured = pytest.CaptureFixture[str]
Look = Callable[[], JobState]


@pytest.fixture
def handle(tmp_path: Path, service_file: Path, capsys: Captured) -> Iterator[JobHandle]:
    """A service that was submitted from inside what looks like another job, and is ready."""
    site = tmp_path / "onebox.yaml"
    text = (ROOT / "site_configs" / "onebox.yaml").read_text(encoding="utf-8")
    site.write_text(text.replace("~/.cache/hpcserve/models", str(tmp_path / "models")), encoding="utf-8")
    service_file.write_text(service_file.read_text().replace("partition: null", "partition: main"))
    jobs = str(tmp_path / "jobs of é '$x'")
    with pytest.MonkeyPatch.context() as outer:
        for name, value in {
            "SLURM_CPU_BIND": "mask_cpu:0x1",
            "SLURM_MEM_PER_CPU": "1",
            "SBATCH_ARRAY_INX": "0-3",
        }.items():
            outer.setenv(name, value)
        words = ["submit", str(service_file), "--site", str(site), "--jobs-dir", jobs, "--wait", "--timeout", "120"]
        assert run(words) == 0, capsys.readouterr().err
    made = decode_record(JobHandle, next(Path(jobs).glob("*/job.json")).read_bytes())
    capsys.readouterr()
    yield made
    assert run(["cancel", made.directory]) == 0
    assert run(["cancel", made.directory]) == 0


@pytest.fixture
def look(handle: JobHandle, capsys: Captured) -> Look:
    def state() -> JobState:
        capsys.readouterr()
        assert run(["status", handle.directory, "--json"]) == 0
        return decode_record(JobState, capsys.readouterr().out.encode())

    return state


def until(look: Look, phase: str) -> JobState:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        state = look()
        if state.phase == phase:
            return state
        time.sleep(0.5)
    raise AssertionError(look())


def generations(directory: str) -> dict[str, str]:
    records = (decode_record(Endpoint, path.read_bytes()) for path in Path(directory, "endpoints").glob("*.json"))
    return {record.id: record.generation for record in records}


def test_a_submitted_service_answers_with_its_key_and_not_without(handle: JobHandle, look: Look) -> None:
    state = look()
    assert (state.phase, state.simulated, state.handle) == ("ready", True, handle)
    key = Path(handle.directory, "keys", "api.key").read_text()
    body = {"model": "smollm2", "prompt": "hello", "max_tokens": 4}
    url, headers = f"{state.url}/v1/completions", {"Authorization": f"Bearer {key}"}
    assert httpx.post(url, json=body, headers=headers, timeout=30).json()["usage"]["completion_tokens"] == 4
    assert httpx.post(url, json=body, timeout=30).status_code == 401


def test_a_requeued_job_serves_again_and_believes_nothing_of_its_first_life(handle: JobHandle, look: Look) -> None:
    before = generations(handle.directory)
    slurm("scontrol", "requeue", handle.id)
    state = until(look, "pending")
    assert state.url is None
    slurm("scontrol", "update", f"JobId={handle.id}", "StartTime=now")
    until(look, "ready")
    after = generations(handle.directory)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())
    assert len(Path(handle.directory, "logs", "slurm.out").read_text().splitlines()) > 1


def test_the_signal_before_the_time_limit_ends_the_job_well(handle: JobHandle, look: Look) -> None:
    subprocess.run(["scancel", "--signal=TERM", "--batch", handle.id], check=True)
    state = until(look, "ended")
    assert state.scheduler_state == "COMPLETED"
    assert json.loads(Path(handle.directory, "exit.json").read_text())["code"] == 0
    assert {worker.phase for worker in state.workers} == {"stopped"}


def test_a_worker_that_is_gone_shows_in_the_status(handle: JobHandle, look: Look) -> None:
    (endpoint,) = Path(handle.directory, "endpoints").glob("decode-0.json")
    pid = decode_record(Endpoint, endpoint.read_bytes()).pid
    subprocess.run(["kill", "-KILL", str(pid)], check=True)
    end = time.monotonic() + 60
    while (state := look()).phase == "ready" and time.monotonic() < end:
        time.sleep(0.1)
    assert state.phase in {"degraded", "starting"}
    restarts = {worker.id: worker.restarts for worker in until(look, "ready").workers}
    assert restarts == {"prefill-0": 0, "decode-0": 1}
