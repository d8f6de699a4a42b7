from datetime import date
from pathlib import Path

import pytest

from hpcserve.fabric import fabric_of
from hpcserve.measure import Errand, Flow, Reading, measurement_of, measurement_text, plan_errand, read_readings
from hpcserve.measure.readings import add_reading
from hpcserve.nouns import Measurement
from tests.measure.grounds import nodes_of, shipped

SITE = shipped("onebox")
FABRIC = fabric_of(SITE)
ERRAND = plan_errand(SITE, nodes=nodes_of(SITE), seconds=1.0)
MIB_16 = 16 * 2**20
DAY = date(2026, 5, 31)


def reading(number: int, task: int, flow: Flow, *, gb_per_s: float, **changes: object) -> Reading:
    took = MIB_16 / gb_per_s / 1e9
    made = Reading(
        round=number,
        task=task,
        flow=flow,
        attempt=1,
        batch_bytes=MIB_16,
        batches_s=tuple((0.5 + place * took, 0.5 + (place + 1) * took) for place in range(3)),
        latency_us=80.0,
        transport="tcp",
        device="data0",
        moved_bytes=4 * MIB_16,
        nic_bytes=int(4.2 * MIB_16),
        nixl="1.5.2",
    )
    return made.model_copy(update=changes)


def all_readings(errand: Errand = ERRAND) -> list[Reading]:
    """Every pair at 95 % of what the site says, and two flows of each uplink that share it 1 to 3."""
    made = []
    for number, tasks in enumerate(errand.rounds):
        for place, task in enumerate(tasks):
            for share, flow in enumerate(task.flows):
                source, reader = errand.seats[flow.source].node, errand.seats[flow.reader].node
                alone = 0.1135 if FABRIC.leaf_of(source) == FABRIC.leaf_of(reader) else 0.0227
                made.append(reading(number, place, flow, gb_per_s=alone * (0.25, 0.75)[share] if task.links else alone))
    return made


def summed(readings: list[Reading], **more: tuple[str, ...]) -> Measurement:
    return measurement_of(ERRAND, readings, fabric=FABRIC, day=DAY, **more)


def test_a_whole_run_gives_every_pair_and_class_and_nothing_stands_out() -> None:
    found = summed(all_readings())
    assert len(found.pairs) == 12
    assert {one.n: one.median for one in found.classes} == pytest.approx({4: 0.1135, 8: 0.0227})
    assert (found.outliers, found.missing) == ((), ())
    assert {pair.device for pair in found.pairs} == {"data0"}
    assert found.day == "2026-05-31"


def test_a_shared_link_carries_what_its_flows_move_while_all_of_them_run() -> None:
    carried = {one.name: one.gb_per_s for one in summed(all_readings()).links}
    assert carried.keys() == {"leaf1 up", "leaf2 down", "leaf2 up", "leaf1 down"}
    # The faster of the two ended first; what the slower read after that, with the link for itself, does not count.
    assert carried["leaf1 up"] == pytest.approx(0.0227, rel=1e-6)


def test_a_link_of_which_a_flow_is_missing_is_not_known() -> None:
    readings = [
        one for one in all_readings() if not (ERRAND.rounds[one.round][one.task].links and one.flow.source == 0)
    ]
    found = summed(readings)
    assert {one.name for one in found.links} == {"leaf2 up", "leaf1 down"}
    (line,) = found.missing
    assert "node01:data0 to node03:data0" in line
    assert "leaf1 up" in line


def test_a_nic_whose_counter_stood_still_did_not_carry_it() -> None:
    readings = [one.model_copy(update={"nic_bytes": 1000}) for one in all_readings()]
    found = summed(readings)
    assert {pair.device for pair in found.pairs} == {None}
    assert "not proved" in measurement_text(found, fabric=FABRIC)


def test_what_failed_is_named_with_its_reason_and_the_rest_is_kept() -> None:
    readings = all_readings()
    bad = readings[0]
    readings[0] = Reading(round=bad.round, task=bad.task, flow=bad.flow, attempt=2, error="node02:data0: it died")
    found = summed(readings, trouble=("measure.sbatch: attempt 1 ended with 137",))
    assert len(found.pairs) == 11
    assert found.missing == (
        "measure.sbatch: attempt 1 ended with 137",
        "node01:data0 to node02:data0: node02:data0: it died",
    )
    text = measurement_text(found, fabric=FABRIC)
    assert "not measured: node01:data0 to node02:data0" in text


def test_the_text_sets_each_pair_beside_the_site() -> None:
    text = measurement_text(summed(all_readings()), fabric=FABRIC)
    row = next(line for line in text.splitlines() if line.startswith("node01:0 to node02:0"))
    assert row.split()[3:] == ["0.1135", "0.1195", "95", "%", "80", "tcp", "data0", "3", "0", "%"]
    assert "No pair is slower than its like." in text


def test_readings_outlive_a_torn_line_and_a_later_success_replaces_a_failure(tmp_path: Path) -> None:
    flow = Flow(source=0, reader=1)
    failed = Reading(round=0, task=0, flow=flow, attempt=1, error="no")
    good = reading(0, 0, flow, gb_per_s=0.1)
    other = reading(1, 0, flow, gb_per_s=0.1)
    for one in (failed, good, other):
        add_reading(tmp_path, one, seat="node02.0")
    path = tmp_path / "readings" / "node02.0.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert read_readings(tmp_path) == (good,)
    add_reading(tmp_path, failed.model_copy(update={"attempt": 2}), seat="node02.1")
    assert read_readings(tmp_path) == (good,)
    assert read_readings(tmp_path / "none") == ()
