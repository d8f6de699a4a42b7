"""`hpcserve site measure` on shaped links: against iperf3 in the same run, with one node slowed by hand."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcserve.nouns import Measurement
from hpcserve.wire import decode_record
from tests.real.harness import HPCSERVE, ROOT, Parts, pids_of, wait_for

pytestmark = [pytest.mark.whole_cluster, pytest.mark.timeout(300)]

CLOSE = 0.10
"""How far a figure may be from iperf3's of the same pair."""
TRIES = 3
"""A figure that another process of this machine spoiled is measured once more, with iperf3's beside it."""


IPERF = """\
if [[ $SLURMD_NODENAME == "$1" ]]; then exec iperf3 --server --one-off --bind="$1-data" >/dev/null; fi
for try in {1..50}; do
  said=$(iperf3 --client="$1-data" --reverse --json --time=2 --omit=1) && grep -q sum_received <<<"$said" && break
  sleep 0.2 # the server is not there yet
done
echo "$said"
"""


def iperf_gb_per_s(source: str, reader: str) -> float:
    """What one TCP stream brings from `source` to `reader` over the data network."""
    step = ["srun", "--nodes=2", "--ntasks-per-node=1", "--mem=64", "--immediate=30", f"--nodelist={source},{reader}"]
    done = subprocess.run(
        [*step, "bash", "-c", IPERF, "iperf", source], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8e9


def measure(parts: Parts, output: Path, *words: str) -> list[str]:
    """The command of a measurement."""
    options = ["--site", parts.site, "--jobs-dir", str(parts.jobs), "--output", str(output), *words]
    return [str(HPCSERVE), "site", "measure", *options]


def measured(parts: Parts, output: Path, *words: str) -> Measurement:
    done = subprocess.run(measure(parts, output, *words), capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)  # noqa: T201 - the figures, where the test is looked at
    return decode_record(Measurement, output.read_bytes())


@pytest.fixture
def slow_node() -> Iterator[str]:
    """node03, whose link is a tenth of what the site says."""
    change = [
        str(ROOT / "slurm" / "cluster"),
        "--name",
        os.environ["HPCSERVE_TEST_CLUSTER"],
        "link",
        "node03",
        "--rate",
    ]
    subprocess.run([*change, "100mbit"], check=True, timeout=30)
    yield "node03"
    subprocess.run([*change, "1gbit"], check=True, timeout=30)


def test_pairs_uplinks_and_a_slow_node_are_found_as_they_are(parts: Parts, tmp_path: Path, slow_node: str) -> None:
    for _ in range(TRIES):
        found = measured(parts, tmp_path / "measured.json", "--seconds", "1")
        rates = {(pair.a.node, pair.b.node): pair.gb_per_s for pair in found.pairs}
        truth = {ends: iperf_gb_per_s(*ends) for ends in (("node01", "node02"), ("node02", "node04"))}
        print("iperf3, GB/s:", truth)  # noqa: T201 - beside the figures
        if all(abs(rates[ends] / rate - 1) < CLOSE for ends, rate in truth.items()):
            break
    else:
        pytest.fail(f"no run of {TRIES} came close to iperf3; see the figures above")

    (worst,) = found.outliers
    assert (worst.kind, worst.name) == ("node", slow_node)
    assert worst.gb_per_s == pytest.approx(0.1 / 8, rel=0.2)

    carried = {link.name: link.gb_per_s for link in found.links}
    assert carried.keys() == {"leaf1 up", "leaf2 down", "leaf2 up", "leaf1 down"}
    # Two flows share 200 Mbit/s: together they get what one gets alone.
    assert carried["leaf1 up"] == pytest.approx(rates["node02", "node04"], rel=0.15)
    assert {(pair.transport, pair.device) for pair in found.pairs} == {("tcp", "data0")}
    assert found.missing == ()


def test_a_rank_that_is_killed_costs_an_attempt_and_no_figure(parts: Parts, tmp_path: Path) -> None:
    output = tmp_path / "measured.json"
    nodes = ["--nodes", "node[01-02]", "--seconds", "3"]
    with subprocess.Popen(
        measure(parts, output, *nodes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        directory = wait_for("a job directory", lambda: newest(parts.jobs), within_s=60)
        wait_for("a reading", lambda: list((directory / "readings").glob("*.jsonl")), within_s=60)
        ranks = [pid for pid in pids_of(directory) if is_rank(pid)]
        assert len(ranks) >= 2
        os.kill(ranks[0], signal.SIGKILL)
        said, told = command.communicate(timeout=150)
    assert command.returncode == 0, said + told
    assert "attempt 1 ended with" in told
    found = decode_record(Measurement, output.read_bytes())
    assert {(pair.a.node, pair.b.node) for pair in found.pairs} == {("node01", "node02"), ("node02", "node01")}
    lines = [line for path in directory.glob("readings/*.jsonl") for line in path.read_text().splitlines()]
    attempts = [json.loads(line)["attempt"] for line in lines]
    assert sorted(attempts) == [1, 2], "what the first attempt measured is not measured again"


def newest(jobs: Path) -> Path | None:
    """The job directory of the measurement that runs: its progress says that it is not done."""
    found = sorted(jobs.glob("measure-*"), key=lambda path: path.stat().st_mtime)
    return found[-1] if found and not (found[-1] / "exit.json").exists() else None


def is_rank(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return b"python" in words[0] and b"hpcserve.measure.rank" in words
