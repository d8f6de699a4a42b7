"""Starts and ends: interrupted, killed, at once, on what others left."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.slurm.conftest import ROOT, Clusters

pytestmark = pytest.mark.real

TWO_NODES = ("up", "--nodes", "2")


@pytest.mark.parametrize("after_s", [0.15, 0.3, 0.45, 0.7, 1.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_up_leaves_nothing(clusters: Clusters, after_s: float, number: signal.Signals) -> None:
    starting = clusters.start(*TWO_NODES)
    time.sleep(after_s)
    starting.send_signal(number)
    said, complaint = starting.communicate(timeout=60)
    if starting.returncode == 0:
        assert "up after" in said  # it was faster than the signal
        clusters.run("down")
    elif starting.returncode != -number and "import the site module" not in complaint:  # else Python was just starting
        assert starting.returncode == 128 + number
        assert number.name in complaint
    clusters.assert_nothing_left()


def test_what_a_killed_up_tried_out_goes_with_the_next(clusters: Clusters) -> None:
    ended = clusters.start("--help")
    ended.communicate(timeout=20)
    clusters.directory.mkdir(mode=0o700)
    left = clusters.directory / f".probe-{ended.pid}-abc"
    left.mkdir()
    own = clusters.directory / f".probe-{os.getpid()}-abc"
    own.mkdir()
    clusters.run("down")
    assert not left.exists()
    own.rmdir()
    clusters.run("down")
    clusters.assert_nothing_left()


@pytest.mark.parametrize("after_s", [0.2, 0.5])
def test_a_killed_up_is_healed_by_the_next(clusters: Clusters, after_s: float) -> None:
    starting = clusters.start(*TWO_NODES)
    time.sleep(after_s)
    starting.kill()
    starting.communicate(timeout=20)
    clusters.run(*TWO_NODES)
    assert clusters.run("exec", "srun", "-N2", "hostname").stdout.split()
    clusters.run("down")
    clusters.assert_nothing_left()


def test_two_ups_at_once_make_one_cluster(clusters: Clusters) -> None:
    both = [clusters.start(*TWO_NODES) for _ in range(2)]
    said = [one.communicate(timeout=60)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert sum("up after" in words for words in said) == 1
    assert sum("already up" in words for words in said) == 1
    clusters.run("down")
    clusters.assert_nothing_left()


def test_down_ends_what_jobs_left_behind_and_survives_killed_daemons(clusters: Clusters, tmp_path: Path) -> None:
    clusters.run(*TWO_NODES)
    pid_file = tmp_path / "pid"
    script = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ >{pid_file}; while :; do sleep 1; done' </dev/null &"
    clusters.run("exec", "sbatch", "-W", "-o/dev/null", "--wrap", script)
    deadline = time.monotonic() + 10
    while not pid_file.exists() or not pid_file.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    left_behind = Path(f"/proc/{pid_file.read_text().strip()}")
    assert left_behind.exists()
    for record in (clusters.directory / "onebox/run").glob("slurm*.process"):
        os.kill(int(record.read_text().split()[0]), signal.SIGKILL)
    clusters.run("down")
    assert not left_behind.exists() or "\nState:\tZ" in (left_behind / "status").read_text()
    clusters.assert_nothing_left()


def test_down_can_keep_the_logs_and_up_starts_on_them(clusters: Clusters) -> None:
    clusters.run(*TWO_NODES)
    clusters.run("down", "--keep-logs")
    directory = clusters.directory / "onebox"
    assert {path.name for path in directory.iterdir()} == {"log", "cluster.json"}
    assert "slurmctld version" in (directory / "log/slurmctld.log").read_text()
    assert clusters.run("status", code=3).stdout == "onebox: down\n"
    clusters.run(*TWO_NODES)
    clusters.run("down")
    clusters.assert_nothing_left()


def test_a_directory_that_is_not_a_cluster_is_left_alone(clusters: Clusters) -> None:
    precious = clusters.directory / "onebox/thesis.tex"
    precious.parent.mkdir(parents=True)
    precious.write_text("years")
    for verb in ("up", "down", "status"):
        assert "is not a cluster's directory" in clusters.run(verb, code=1).stderr
    assert precious.read_text() == "years"
    shutil.rmtree(clusters.directory)


def test_status_and_exec_and_link_of_a_cluster_that_is_down(clusters: Clusters) -> None:
    assert clusters.run("status", code=3).stdout == "onebox: down\n"
    assert '"state": "down"' in clusters.run("status", "--json", code=3).stdout
    for arguments in (("exec", "true"), ("link", "node01", "--down")):
        assert "slurm/cluster up" in clusters.run(*arguments, code=3).stderr
    assert "down" in clusters.run("down").stdout
    clusters.assert_nothing_left()


def test_a_machine_without_the_right_to_make_namespaces_is_told_so(clusters: Clusters) -> None:
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", ROOT / "slurm/cluster", "up"],
        env=clusters.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert "namespaces cannot be made" in done.stderr
    assert "hpcserve submit --launcher local" in done.stderr
    clusters.assert_nothing_left()


def test_accounting_in_a_database_of_its_own(clusters: Clusters) -> None:
    if shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        pytest.fail("needs the packages of `slurm/cluster packages --accounting slurmdbd`")
    clusters.run(*TWO_NODES, "--accounting", "slurmdbd")
    job = clusters.run("exec", "sbatch", "-W", "--parsable", "-o/dev/null", "--wrap", "true").stdout.strip()
    deadline = time.monotonic() + 20
    while "COMPLETED" not in (said := clusters.run("exec", "sacct", "-nXP", "-j", job, "-o", "State").stdout):
        assert time.monotonic() < deadline, said
        time.sleep(0.3)
    clusters.run("down")
    clusters.assert_nothing_left()
