"""Which nodes are asked together, and what becomes of a step that hangs; `srun` is a script in the test's folder."""

import os
from pathlib import Path

import pytest

from hpcserve.discovery import write_record
from hpcserve.doctor.finding import NodeReport
from hpcserve.doctor.meeting import FOLDERS, Ping
from hpcserve.doctor.order import Order
from hpcserve.doctor.steps import await_reports, sleepers, start_steps
from tests.doctor.hosts import ETHERNET, site_of

SITE = site_of(ETHERNET.replace("p[1-2]", "p[1-6]"))
STATES = {"p1": "idle", "p2": "plnd", "p3": "pow_dn", "p4": "drng", "p5": "idle", "p6": "alloc"}


def _order(folder: Path, srun: str, *, nodes: tuple[str, ...] = (), wait_s: float = 30.0) -> Order:
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    (bin_folder / "srun").write_text(f"#!/bin/sh\n{srun}\n")
    (bin_folder / "srun").chmod(0o700)
    directory = folder / "look"
    for name in FOLDERS:
        (directory / name).mkdir(parents=True)
    return Order(
        site=SITE,
        site_text="",
        nodes=nodes,
        account=None,
        directory=directory,
        runtimes=(),
        tested={},
        wait_s=wait_s,
        environment=os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"},
    )


def _asked(order: Order) -> list[tuple[str, ...]]:
    assert SITE.slurm is not None
    steps = start_steps(order, SITE.slurm, STATES)
    _, asked = await_reports(order, steps, report=lambda _: None)
    assert [one.said for one in asked] == [(f"--nodelist={','.join(one.nodes)}",) for one in asked]
    return [one.nodes for one in asked]


SAY_NODES = 'for word; do case $word in --nodelist=*) echo "$word";; esac; done; exit 1'


def test_free_nodes_are_asked_at_once_busy_ones_apart_and_those_away_or_asleep_not(tmp_path: Path) -> None:
    order = _order(tmp_path, SAY_NODES)
    assert _asked(order) == [("p1", "p5"), ("p2", "p6")]
    assert sleepers(order, STATES) == ("p3",)


def test_a_node_that_is_asleep_is_woken_where_it_is_named(tmp_path: Path) -> None:
    order = _order(tmp_path, SAY_NODES, nodes=("p3", "p4", "p5"))
    assert _asked(order) == [("p5",), ("p3",)]
    assert sleepers(order, STATES) == ()


def test_a_step_that_hangs_is_ended_and_known_to_be_late_and_who_had_begun(tmp_path: Path) -> None:
    order = _order(tmp_path, "echo started; exec sleep 60", wait_s=0.3)
    write_record(order.directory / "ping/p1.json", Ping(node="p1"))
    assert SITE.slurm is not None
    steps = start_steps(order, SITE.slurm, {"p1": "idle", "p5": "idle"})
    reports, (asked,) = await_reports(order, steps, report=lambda _: None)
    assert reports == {}
    assert (asked.nodes, asked.said, asked.late_s) == (("p1", "p5"), ("started",), 0.6)
    assert asked.begun == {"p1"}
    assert steps[0].process.poll() is not None


def test_reports_of_a_step_that_ended_well_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node wrote is not yet in the listing when its srun has ended."""
    order = _order(tmp_path, "exit 0")
    looks = 0
    report = NodeReport(node="p1", findings=(), took_s=0.1)

    def pings(_directory: Path, _answered: set[str]) -> None:
        nonlocal looks
        looks += 1
        if looks == 4:
            write_record(order.directory / "nodes/p1.json", report)

    monkeypatch.setattr("hpcserve.doctor.steps.answer_pings", pings)
    assert SITE.slurm is not None
    steps = start_steps(order, SITE.slurm, {"p1": "idle"})
    steps[0].process.wait()
    reports, (asked,) = await_reports(order, steps, report=lambda _: None)
    assert reports == {"p1": report}
    assert asked.late_s is None
