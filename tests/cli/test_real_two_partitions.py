"""Prefill in one partition and decode in another, as one job of a real Slurm: run inside `slurm/cluster exec`."""

import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from hpcserve.cli.program import run
from hpcserve.nouns import JobHandle, JobState, Plan
from hpcserve.site import expand_hosts
from hpcserve.wire import decode_record
from tests.deploy.conftest import model, service_file
from tests.golden.cases import onebox_with
from tests.real.harness import slurm, wait_for

__all__ = ["model", "service_file"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
Captured = pytest.CaptureFixture[str]

HOSTS = {"left": "node[01,03]", "right": "node[02,04]"}
"""Two partitions beside `main`, each with a node under either leaf: one of each is free, whatever else runs."""


def is_deleted(partition: str) -> bool:
    """Delete it; jobs that have not quite ended keep it, and it may never have been made."""
    subprocess.run(("scontrol", "delete", f"PartitionName={partition}"), check=False, capture_output=True, timeout=60)
    return partition not in slurm("sinfo", "--noheader", "--all", "--format=%R").split()


@pytest.fixture
def partitions() -> Iterator[Mapping[str, str]]:
    try:
        for name, hosts in HOSTS.items():
            slurm("scontrol", "create", f"PartitionName={name}", f"Nodes={hosts}", "MaxTime=INFINITE", "State=UP")
        yield HOSTS
    finally:
        wait_for("the end of the partitions", lambda: all(list(map(is_deleted, HOSTS))), within_s=30)


@pytest.fixture
def handle(tmp_path: Path, service_file: Path, partitions: Mapping[str, str], capsys: Captured) -> Iterator[JobHandle]:
    """A service over both partitions that is ready."""
    described = "".join(
        f"  {name}: {{hosts: '{hosts}', max_time: 1-00:00:00, account_required: false}}\n"
        for name, hosts in partitions.items()
    )
    text = onebox_with(described)
    site = tmp_path / "site.yaml"
    site.write_text(text.replace("~/.cache/hpcserve/models", str(tmp_path / "models")), encoding="utf-8")
    asked = service_file.read_text().replace("partition: null", "partition: left").replace("same-leaf", "best")
    service_file.write_text(asked.replace("  - role: decode\n", "  - role: decode\n    partition: right\n"))
    jobs = str(tmp_path / "jobs of é '$x'")
    assert run(["submit", str(service_file), "--site", str(site), "--jobs-dir", jobs]) == 0, capsys.readouterr().err
    made = decode_record(JobHandle, next(Path(jobs).glob("*/job.json")).read_bytes())
    try:
        assert run(["wait", made.directory, "--timeout", "240"]) == 0, capsys.readouterr().err
        capsys.readouterr()
        yield made
    finally:
        assert run(["cancel", made.directory]) == 0


def rows(handle: JobHandle, *fields: str) -> dict[str, list[str]]:
    """What squeue says of each component of the job, by its id."""
    text = slurm("squeue", "--noheader", "--states=all", f"--jobs={handle.id}", f"--format=%i|{'|'.join(fields)}")
    return {row[0]: row[1:] for row in (line.split("|") for line in text.splitlines())}


def test_one_job_of_two_components_serves_across_both_and_ends_as_one(handle: JobHandle, capsys: Captured) -> None:
    directory = Path(handle.directory)
    assert directory.stat().st_mode & 0o777 == 0o700
    plan = decode_record(Plan, (directory / "plan.json").read_bytes())
    assert plan.granted
    prefill, decode = (plan.worker(name).node for name in ("prefill-0", "decode-0"))
    assert prefill in expand_hosts(HOSTS["left"])
    assert decode in expand_hosts(HOSTS["right"])
    assert plan.router.node == prefill
    assert rows(handle, "%P", "%T", "%N") == {
        f"{handle.id}+0": ["left", "RUNNING", prefill],
        f"{handle.id}+1": ["right", "RUNNING", decode],
    }

    assert run(["status", handle.directory, "--json"]) == 0
    state = decode_record(JobState, capsys.readouterr().out.encode())
    assert (state.phase, state.scheduler_state) == ("ready", "RUNNING")
    assert {worker.node for worker in state.workers} == {prefill, decode}
    assert run(["wait", handle.directory]) == 0
    assert run(["logs", handle.directory, f"agent.{decode}"]) == 0
    capsys.readouterr()
    assert run(["url", handle.directory]) == 0
    assert state.url is not None
    assert capsys.readouterr().out.startswith(state.url)

    headers = {"Authorization": f"Bearer {(directory / 'keys' / 'api.key').read_text()}"}
    prompt = "The wind in the pines. " * 40
    said = httpx.post(
        f"{state.url}/v1/completions",
        json={"model": "smollm2", "prompt": prompt, "max_tokens": 4},
        headers=headers,
        timeout=30,
    ).json()
    assert said["usage"]["completion_tokens"] == 4
    metrics = httpx.get(f"{state.url}/metrics", headers=headers, timeout=30).text
    (handed_over,) = [line for line in metrics.splitlines() if line.startswith("hpcserve_router_path_handoffs_total{")]
    assert 'prefill="prefill-0"' in handed_over
    assert 'decode="decode-0"' in handed_over
    assert float(handed_over.split()[-1]) >= 1

    assert run(["cancel", handle.directory]) == 0
    end = time.monotonic() + 30
    while (left := rows(handle, "%T")) and {row[0] for row in left.values()} != {"COMPLETED"}:
        assert time.monotonic() < end, left
        time.sleep(0.2)
    assert json.loads((directory / "exit.json").read_text())["code"] == 0
