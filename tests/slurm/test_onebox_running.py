"""One cluster that is up, looked at and used from every side."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.conftest import ROOT, Clusters

pytestmark = pytest.mark.real

SPEED = Path(__file__).parent / "link_speed.py"


@pytest.fixture(scope="module", autouse=True)
def _up(clusters: Clusters) -> Iterator[None]:
    clusters.run("up")
    yield
    clusters.run("down")
    clusters.assert_nothing_left()


def speeds(clusters: Clusters, count: int, sender: str, *receivers: str) -> dict[str, float]:
    nodes = (sender, *receivers)
    step = ("srun", "-l", "-K", "-t2", f"-N{len(nodes)}", "-w", ",".join(nodes))
    done = clusters.run("exec", *step, sys.executable, str(SPEED), str(count), *nodes)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {node: float(rate) for _, node, rate in rows}


def state_of(clusters: Clusters) -> dict[str, Any]:
    done = subprocess.run(
        [ROOT / "slurm/cluster", "status", "--json"], env=clusters.environment(), capture_output=True, check=False
    )
    status: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == {"up": 0, "degraded": 1, "down": 3}[status["state"]]
    return status


def test_all_nodes_are_idle_and_run_a_step_under_their_own_names(clusters: Clusters) -> None:
    status = state_of(clusters)
    nodes = status["nodes"]
    assert status["state"] == "up"
    assert [(node["name"], node["leaf"], node["slurm_state"]) for node in nodes] == [
        ("node01", "leaf1", "idle"),
        ("node02", "leaf1", "idle"),
        ("node03", "leaf2", "idle"),
        ("node04", "leaf2", "idle"),
    ]
    done = clusters.run("exec", "srun", "-N4", "--gpus-per-node=1", "sh", "-c", "hostname; echo $CUDA_VISIBLE_DEVICES")
    assert sorted(done.stdout.split()) == ["0", "0", "0", "0", "node01", "node02", "node03", "node04"]


def test_up_again_changes_nothing_and_other_options_are_refused(clusters: Clusters) -> None:
    before = clusters.processes()
    assert "already up" in clusters.run("up").stdout
    assert "already up" in clusters.run("up", "--uplink-rate", "0.2gbit").stdout
    refused = clusters.run("up", "--nodes", "3", code=2).stderr
    assert "--nodes 4" in refused
    assert "--nodes 3" in refused
    assert "slurm/cluster down" in refused
    assert clusters.processes() == before


def test_exec_is_the_command_itself(clusters: Clusters, tmp_path: Path) -> None:
    done = clusters.run("exec", "sh", "-c", "cat; pwd; hostname; exit 7", text_in="given\n", cwd=tmp_path, code=7)
    assert done.stdout.split() == ["given", str(tmp_path), "ctl"]
    assert clusters.run("--name", "onebox", "exec", "echo", "--name", "x").stdout == "--name x\n"
    assert clusters.run("exec", "--name=onebox", "--", "echo", "a  b").stdout == "a  b\n"
    assert "no-such-command" in clusters.run("exec", "no-such-command", code=127).stderr
    # A writer whose reader leaves must die of SIGPIPE and not see an error that Python left ignored.
    clusters.run("exec", "bash", "-c", "yes | head -1 >/dev/null; exit ${PIPESTATUS[0]}", code=128 + signal.SIGPIPE)


def test_exec_passes_signals_on(clusters: Clusters) -> None:
    sleeping = clusters.start(
        "exec", "sh", "-c", "trap 'echo caught; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    )
    assert sleeping.stdout is not None
    assert sleeping.stdout.readline() == "ready\n"
    sleeping.send_signal(signal.SIGTERM)
    rest, _ = sleeping.communicate(timeout=20)
    assert (rest, sleeping.returncode) == ("caught\n", 5)


def test_neither_exec_nor_a_job_sees_a_variable_of_the_cluster(clusters: Clusters) -> None:
    show = ("-c", "import json, os; print(json.dumps(dict(os.environ)))")

    def variables(*command: str) -> dict[str, str]:
        found: dict[str, str] = json.loads(clusters.run(*command, sys.executable, *show).stdout)
        return found

    # What starts `python3` on this machine may add variables of its own, before anything of the cluster runs.
    plain: dict[str, str] = json.loads(
        subprocess.run(
            ["python3", *show], env=clusters.environment(), capture_output=True, text=True, check=True
        ).stdout
    )
    conf = str(clusters.directory / "onebox/etc/slurm.conf")
    inside = variables("exec")
    assert inside == plain | {"SLURM_CONF": conf}
    in_job = variables("exec", "srun", "-N1", "-n1")
    set_by_slurm = (
        "SLURM",
        "SRUN_",
        "CUDA_VISIBLE",
        "GPU_DEVICE",
        "ROCR_VISIBLE",
        "ZE_AFFINITY",
        "TMPDIR",
        "HOSTNAME",
        "PMI",
    )
    assert {name for name in in_job.keys() - inside.keys() if not name.startswith(set_by_slurm)} == set()


def test_slurm_is_found_where_a_job_cleared_its_environment(clusters: Clusters) -> None:
    done = clusters.run("exec", "srun", "-N1", "env", "-i", "/usr/bin/sinfo", "-h", "-o", "%D")
    assert done.stdout == "4\n"


def test_near_is_five_times_as_fast_as_far(clusters: Clusters) -> None:
    # The rates of the defaults, 1 Gbit/s and 200 Mbit/s; a busy machine gets a second try.
    rate = speeds(clusters, 24_000_000, "node01", "node02", "node03")
    if not 3.5 < rate["node02"] / rate["node03"] < 6.5:
        rate = speeds(clusters, 24_000_000, "node01", "node02", "node03")
    assert 3.5 < rate["node02"] / rate["node03"] < 6.5
    assert 150 < rate["node03"] < 205


def test_a_link_is_reshaped_cut_and_mended_while_the_node_stays_up(clusters: Clusters) -> None:
    assert clusters.run("link", "node02", "--rate", "100mbit").stdout == "onebox: node02 100mbit up\n"
    assert 75 < speeds(clusters, 8_000_000, "node01", "node02")["node02"] < 103
    assert 75 < speeds(clusters, 8_000_000, "node02", "node01")["node01"] < 103

    assert clusters.run("link", "node02", "--down", "--rate", "1gbit").stdout == "onebox: node02 1gbit down\n"
    status = state_of(clusters)
    assert status["problems"] == ["the data link of node02 is down"]
    connect = "import socket; socket.create_connection(('node02-data', 6818), timeout=1.5)"
    done = subprocess.run(
        [ROOT / "slurm/cluster", "exec", "srun", "-w", "node01", sys.executable, "-c", connect],
        env=clusters.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "TimeoutError" in done.stderr or "No route to host" in done.stderr
    assert clusters.run("exec", "srun", "-w", "node02", "hostname").stdout == "node02\n"

    assert clusters.run("link", "node02", "--up").stdout == "onebox: node02 1gbit up\n"
    assert clusters.run("exec", "srun", "-w", "node01", sys.executable, "-c", connect).returncode == 0
    assert "wanted one of node01" in clusters.run("link", "node77", "--down", code=2).stderr


def test_nothing_of_the_cluster_reaches_outside(clusters: Clusters) -> None:
    routes = clusters.run("exec", "srun", "-N1", "ip", "route").stdout.splitlines()
    assert sorted(route.split()[0] for route in routes) == ["198.18.77.0/24", "198.19.77.0/24"]
    outside = subprocess.run(["ip", "-o", "address"], capture_output=True, text=True, check=True).stdout
    assert "198.18.77." not in outside
    assert "198.19.77." not in outside


def test_killed_daemons_come_back_and_the_job_lives_on(clusters: Clusters) -> None:
    job = clusters.run("exec", "sbatch", "--parsable", "-wnode03", "-o/dev/null", "--wrap", "sleep 600").stdout.strip()
    squeue = ("exec", "squeue", "-h", "-j", job, "-o", "%T")
    while clusters.run(*squeue).stdout != "RUNNING\n":
        time.sleep(0.1)
    # slurmctld writes its jobs down a few seconds after a change; what it has not written it forgets. The comment is a
    # change after which nothing of the start is unwritten.
    began = time.time()
    clusters.run("exec", "scontrol", "update", f"jobid={job}", "comment=written")
    while (clusters.directory / "onebox/state/job_state").stat().st_mtime < began:
        time.sleep(0.1)
    for daemon in ("munged", "slurmctld", "slurmd.node01", "slurmd.node03"):
        pid = (clusters.directory / f"onebox/run/{daemon}.process").read_text().split()[0]
        os.kill(int(pid), signal.SIGKILL)
    status = state_of(clusters)
    assert status["state"] == "degraded"
    assert "slurmctld does not run; `up` starts it again" in status["problems"]

    done = clusters.run("up")
    assert "starting again: munged, slurmctld, slurmd.node01, slurmd.node03" in done.stdout
    assert state_of(clusters)["state"] == "up"
    assert clusters.run(*squeue).stdout == "RUNNING\n"
    clusters.run("exec", "scancel", job)
    assert len(clusters.run("exec", "srun", "-N3", "-w", "node[01,02,04]", "hostname").stdout.split()) == 3


def test_two_clusters_live_side_by_side(clusters: Clusters) -> None:
    clusters.run("--name", "other", "up", "--nodes", "2", "--gpus", "0")
    assert sorted(clusters.run("exec", "--name", "other", "srun", "-N2", "hostname").stdout.split()) == [
        "node01",
        "node02",
    ]
    assert clusters.run("exec", "sinfo", "-h", "-o", "%D").stdout == "4\n"
    clusters.run("down", "--name", "other")
    assert state_of(clusters)["state"] == "up"


def test_from_inside_links_change_and_the_cluster_neither_starts_nor_ends(clusters: Clusters) -> None:
    cluster = str(ROOT / "slurm/cluster")
    said = clusters.run("exec", cluster, "link", "leaf1", "--rate", "100mbit").stdout
    assert said == "onebox: leaf1 100mbit up\n"
    assert clusters.run("exec", cluster, "status").stdout.startswith("onebox: up\n")
    clusters.run("exec", cluster, "link", "leaf1", "--rate", "200mbit")
    for verb in ("up", "down"):
        assert "inside the cluster onebox" in clusters.run("exec", cluster, verb, "--name", "other", code=2).stderr
