"""The doctor on the one-machine cluster: nothing to complain of where nothing is wrong, and real breakages found."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.harness import HPCSERVE, ROOT, Parts, cancel, hpcserve

pytestmark = pytest.mark.whole_cluster

SITE = (ROOT / "site_configs/onebox.yaml").read_text()
CLUSTER = os.environ.get("HPCSERVE_TEST_CLUSTER", "onebox")


def doctor(*words: str | Path, code: int, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [HPCSERVE, "doctor", "--json", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
        env=os.environ | environment,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def complaints(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The last failure or warning of each check."""
    return {one["check"]: one for one in report["findings"] if one["severity"] in {"failure", "warning"}}


def on(node: str, *command: str) -> None:
    subprocess.run(["srun", "-w", node, *command], check=True, timeout=60, capture_output=True)


def link(node: str, state: str) -> None:
    subprocess.run(
        [ROOT / "slurm/cluster", "--name", CLUSTER, "link", node, f"--{state}"],
        check=True,
        timeout=60,
        capture_output=True,
    )


@pytest.fixture
def broken_hosts(tmp_path: Path) -> Iterator[Path]:
    """On node01: its own name leads to loopback, and a file system of 64 KiB; both in its mount namespace only."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.1.1 node01\n127.0.0.1 localhost\n")
    small = tmp_path / "small"
    small.mkdir()
    on("node01", "mount", "--bind", str(hosts), "/etc/hosts")
    on("node01", "mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small))
    yield small
    on("node01", "umount", "/etc/hosts")
    on("node01", "umount", str(small))


def test_a_sound_cluster_without_gpus_and_rdma_is_not_complained_of(parts: Parts) -> None:
    report = doctor("--site", parts.site, "--jobs-dir", parts.jobs, code=0)
    assert complaints(report) == {}
    assert report["nodes"] == ["node01", "node02", "node03", "node04"]
    said = {one["check"]: one for one in report["findings"]}
    assert {said[check]["severity"] for check in ("gpus", "rdma-devices", "gpu-direct")} == {"not-applicable"}
    assert {said[check]["severity"] for check in ("nixl", "ucx-transports", "slurm-dialect", "clock")} == {"ok"}
    assert not list(parts.jobs.glob(".doctor-*"))


def test_real_breakages_are_found_where_they_are(parts: Parts, tmp_path: Path, broken_hosts: Path) -> None:
    site = tmp_path / "broken.yaml"
    site.write_text(
        SITE.replace("- name: data0", "- name: data9")
        .replace("cache: ~/.cache/hpcserve", f"cache: {broken_hosts}")
        .replace("count: 1", "count: 1\n      gres: h100")
        .replace('version: "22.05"', 'version: "21.08"')
    )
    report = doctor(
        *("--site", site, "--jobs-dir", parts.jobs, "--nodes", "node[01-02]", "--wait", "30"),
        code=11,
        UCX_RNDV_THRESH="inf",
        https_proxy="http://198.51.100.9:3128",
    )
    found = complaints(report)
    # the type of GPU that no gres.conf has: Slurm refuses, and says so in its own words; so no node can be asked
    assert "h100" in found["slurm-dialect"]["what"]
    assert "the site file says 21.08" in found["slurm-facts"]["what"]
    assert found["node"]["nodes"] == ["node01", "node02"]

    site.write_text(site.read_text().replace("      gres: h100\n", ""))
    report = doctor(
        *("--site", site, "--jobs-dir", parts.jobs, "--nodes", "node[01-02]"),
        code=11,
        UCX_RNDV_THRESH="inf",
        https_proxy="http://198.51.100.9:3128",
    )
    found = complaints(report)
    assert report["nodes"] == ["node01", "node02"]
    both, one = ["node01", "node02"], ["node01"]
    assert (found["inherited-transport"]["what"], found["inherited-transport"]["nodes"]) == (
        "inherited: UCX_RNDV_THRESH=inf",
        both,
    )
    assert "node02" in found["proxies"]["nodes"]
    assert found["link-speed"]["what"] == "no interface data9"
    assert "data9" in found["nixl"]["what"]
    assert (found["host-name"]["what"], found["host-name"]["nodes"]) == ("node01 resolves to 127.0.1.1", one)
    assert "No space left" in found["directories"]["what"]
    assert found["directories"]["nodes"] == one


def test_a_site_that_wants_rdma_here_is_told_what_is_missing_and_the_limit_of_a_task(
    parts: Parts, tmp_path: Path
) -> None:
    limit = subprocess.run(
        ["srun", "-w", "node04", "bash", "-c", "ulimit -l"], check=True, timeout=60, capture_output=True, text=True
    ).stdout.strip()
    site = tmp_path / "rich.yaml"
    site.write_text(SITE.replace("- name: data0", "- name: mlx5_0:1").replace("kind: ethernet", "kind: infiniband"))
    report = doctor("--site", site, "--jobs-dir", parts.jobs, "--nodes", "node04", code=11)
    found = complaints(report)
    assert "no RDMA device at all" in found["rdma-devices"]["what"]
    if limit == "unlimited":
        assert "locked-memory" not in found
    else:
        assert found["locked-memory"]["what"] == f"locked memory is limited to {limit} KiB"
    assert "GB/s" in found["backend"]["why"]  # UCX_TLS: tcp


def _service(folder: Path, name: str, spares: int) -> Path:
    text = (ROOT / "docs/examples/sim.yaml").read_text()
    for old, new in (
        ("name: sim\n", f"name: {name}\n"),
        ("partition: null", f"partition: main\nspares: {spares}"),
        ("distance: same-leaf", "distance: best"),
    ):
        assert old in text
        text = text.replace(old, new)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return path


def test_a_job_with_a_spare_goes_on_without_a_bad_node_and_without_one_fails_at_once(
    parts: Parts, tmp_path: Path
) -> None:
    where = ("--site", parts.site, "--jobs-dir", str(parts.jobs))
    link("node01", "down")
    try:
        handle = json.loads(
            hpcserve("submit", _service(tmp_path, "spared", 1), *where, "--wait", "--timeout", "90", "--json")
        )
        directory = Path(handle["handle"]["directory"])
        try:
            state = json.loads(hpcserve("status", directory, "--json"))
            assert state["phase"] == "ready"
            assert [one["node"] for one in state["refused"]] == ["node01"]
            assert "data0, of the data network, is down" in state["refused"][0]["reasons"][0]
            assert "node01" not in {worker["node"] for worker in state["workers"]}
        finally:
            cancel(directory)
        done = subprocess.run(
            [HPCSERVE, "submit", _service(tmp_path, "bare", 0), *where, "--wait", "--timeout", "60"],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert done.returncode == 7
        assert "node01 is unfit to serve: networks: data0" in done.stderr
    finally:
        link("node01", "up")
