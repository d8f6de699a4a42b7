"""`hpcserve plan --allocations` beside a real Slurm: what is idle, when it would start; nothing is submitted."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hpcserve.nouns import Chance, Outlook
from hpcserve.wire import decode_record
from tests.real.harness import ROOT, hpcserve, slurm, wait_for

pytestmark = pytest.mark.whole_cluster

HELD_MIN = 30


@pytest.fixture
def words(tmp_path: Path) -> tuple[str, ...]:
    """The command: two workers of the simulated engine on two nodes, on a site that names the cluster's features."""
    service = (ROOT / "docs/examples/sim.yaml").read_text()
    site = (ROOT / "site_configs/onebox.yaml").read_text()
    for old, new in (("partition: null", "partition: main"), ("distance: same-leaf", "distance: best")):
        assert old in service
        service = service.replace(old, new)
    group = "  - hosts: node[01-04]\n    type: slot\n"
    assert group in site
    leaves = (("node[01-02]", "leaf1"), ("node[03-04]", "leaf2"))
    site = site.replace(
        group, "".join(f"  - {{hosts: '{hosts}', type: slot, features: [{leaf}]}}\n" for hosts, leaf in leaves)
    )
    (tmp_path / "sim.yaml").write_text(service)
    (tmp_path / "featured.yaml").write_text(site)
    return "plan", str(tmp_path / "sim.yaml"), "--site", str(tmp_path / "featured.yaml"), "--allocations"


@pytest.fixture
def held() -> Iterator[list[str]]:
    """Ids of jobs that hold nodes; they are cancelled."""
    ids: list[str] = []
    try:
        yield ids
    finally:
        if ids:
            slurm("scancel", *ids)
    wait_for("idle nodes", lambda: slurm("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * 4, within_s=30)


def hold(ids: list[str], nodes: str) -> datetime:
    """A job on all of these nodes; when its time is over."""
    count = str(len(slurm("scontrol", "show", "hostnames", nodes).split()))
    job = slurm(
        *("sbatch", "--parsable", "--exclusive", f"--nodes={count}", f"--nodelist={nodes}", f"--time={HELD_MIN}"),
        *("--output=/dev/null", "--wrap=sleep 3000"),
    )
    ids.append(job)
    wait_for("the holding job", lambda: slurm("squeue", "-h", "-j", job, "-o", "%t") == "R", within_s=20)
    return datetime.fromisoformat(slurm("squeue", "-h", "-j", job, "-o", "%e")).astimezone()


def asked(words: tuple[str, ...]) -> dict[str, Chance]:
    """The ways to ask; Slurm's queue is what it was before."""
    before = slurm("squeue", "-h", "-o", "%i %t")
    found = decode_record(Outlook, hpcserve(*words, "--json").encode())
    assert slurm("squeue", "-h", "-o", "%i %t") == before
    return {one.constraint or "free": one for one in found.chances}


def starts(chance: Chance) -> datetime:
    assert chance.estimated_start is not None, chance.constraint
    return datetime.fromisoformat(chance.estimated_start).astimezone()  # Slurm prints local time


def starts_now(constraint: str, ids: list[str]) -> bool:
    """Whether a job of two nodes with that constraint starts on what is idle."""
    job = slurm(
        "sbatch", "--parsable", "--nodes=2", "--gres=gpu:1", constraint, "--output=/dev/null", "--wrap=sleep 60"
    )
    ids.append(job)
    wait_for("a reason", lambda: slurm("squeue", "-h", "-j", job, "-o", "%r") in {"Resources", "None"}, within_s=15)
    state = slurm("squeue", "-h", "-j", job, "-o", "%t")
    slurm("scancel", job)
    return state == "R"


def now_of(chance: Chance) -> tuple[str, ...] | None:
    return None if chance.likely is None else chance.likely.nodes


def test_what_is_idle_and_when_each_way_would_start(words: tuple[str, ...], held: list[str]) -> None:
    at_once = datetime.now().astimezone() + timedelta(minutes=5)
    ways = asked(words)
    assert list(ways) == [
        *("--nodelist=node[01-02]", "--switches=1", "--switches=2", "--constraint=[leaf1|leaf2]", "free"),
    ]
    either = ways["--constraint=[leaf1|leaf2]"]
    assert either.estimated_start is None
    assert all(starts(one) < at_once for one in ways.values() if one is not either)
    assert {now_of(one) for one in ways.values()} == {("node01", "node02")}
    shown = hpcserve(*words)
    assert "Before Slurm has chosen: 2 nodes of onebox are asked for, 4 are idle." in shown
    assert "Slurm is asked for: --partition=main --time=1:00:00 --nodes=2 --switches=1 --gres=gpu:1 " in shown

    end = hold(held, "node[02-03]")
    ways = asked(words)
    assert now_of(ways["free"]) == now_of(ways["--switches=2"]) == ("node01", "node04")
    assert starts(ways["free"]) < at_once
    for way in ("--nodelist=node[01-02]", "--switches=1"):
        assert now_of(ways[way]) is None
        assert starts(ways[way]) >= end
    assert now_of(ways["--constraint=[leaf1|leaf2]"]) is None
    assert not starts_now("--constraint=[leaf1|leaf2]", held)
    near, apart = ways["free"].best, ways["free"].likely
    assert apart is not None
    assert apart.slowest_transfer_ms == pytest.approx((near.slowest_transfer_ms or 0.0) * 5)  # 1 Gbit/s, 200 Mbit/s

    end = min(end, hold(held, "node04"))
    ways = asked(words)
    assert {now_of(one) for one in ways.values()} == {None}
    assert all(starts(one) >= end for way, one in ways.items() if "[leaf1" not in way)
    assert "too few nodes are idle: the job waits in any case" in hpcserve(*words)
