import time
from itertools import pairwise

import pytest

from hpcserve.errors import NotFoundError, PlacementError
from hpcserve.fabric import GpuAt, fabric_of
from hpcserve.measure import Errand, Flow, plan_errand, time_limit_s
from hpcserve.nouns import NicKind, Rate, Site
from tests.measure.grounds import fat_tree, nodes_of, shipped


def errand(site: Site) -> Errand:
    return plan_errand(site, nodes=nodes_of(site), seconds=1.5)


def names(planned: Errand, flow: Flow) -> tuple[str, str]:
    return planned.seats[flow.source].node, planned.seats[flow.reader].node


def pairs(planned: Errand) -> list[tuple[str, str]]:
    return [names(planned, task.flows[0]) for each in planned.rounds for task in each if not task.links]


def test_a_small_site_is_measured_in_every_pair_both_ways() -> None:
    planned = errand(shipped("onebox"))
    every = {(a, b) for a in nodes_of(shipped("onebox")) for b in nodes_of(shipped("onebox")) if a != b}
    assert sorted(pairs(planned)) == sorted(every)
    assert planned.scope == "every pair"


@pytest.mark.parametrize(
    "site", [shipped("onebox"), fat_tree(leaves=4, nodes_per_leaf=6), fat_tree(leaves=2, nodes_per_leaf=3, nics=2)]
)
def test_no_two_tasks_of_a_round_share_a_link_or_a_seat(site: Site) -> None:
    planned, fabric = errand(site), fabric_of(site)
    for each in planned.rounds:
        held: list[str] = []
        for task in each:
            mine = {f"seat {end}" for flow in task.flows for end in (flow.source, flow.reader)}
            for flow in task.flows:
                a, b = planned.seats[flow.source], planned.seats[flow.reader]
                mine |= {link.name for link in fabric.path(GpuAt(a.node, a.gpu), GpuAt(b.node, b.gpu)).links}
            held += mine
        assert len(held) == len(set(held))


def test_flows_that_share_both_uplinks_run_together_with_ends_of_their_own() -> None:
    planned = errand(shipped("onebox"))
    together = {
        task.links: [names(planned, flow) for flow in task.flows]
        for each in planned.rounds
        for task in each
        if task.links
    }
    assert together == {
        ("leaf1 up", "leaf2 down"): [("node01", "node03"), ("node02", "node04")],
        ("leaf2 up", "leaf1 down"): [("node03", "node01"), ("node04", "node02")],
    }


def test_a_large_site_is_measured_in_representatives_that_leave_no_cable_out() -> None:
    site = fat_tree(leaves=8, nodes_per_leaf=16)
    planned, fabric = errand(site), fabric_of(site)
    chosen = pairs(planned)
    assert {a for a, _ in chosen} == {b for _, b in chosen} == set(nodes_of(site))
    across = [(fabric.leaf_of(a), fabric.leaf_of(b)) for a, b in chosen if fabric.leaf_of(a) != fabric.leaf_of(b)]
    assert sorted(across) == sorted([*pairwise(f"leaf{leaf}" for leaf in range(8)), ("leaf7", "leaf0")])
    assert len(chosen) < 4 * len(nodes_of(site))
    filled = {link for each in planned.rounds for task in each for link in task.links}
    assert {f"leaf{leaf} {way}" for leaf in range(8) for way in ("up", "down")} <= filled
    assert all(len(task.flows) == 16 for each in planned.rounds for task in each if task.links)
    assert len(planned.rounds) < 20
    assert time_limit_s(planned) < 600


def test_a_thousand_nodes_are_planned_in_seconds() -> None:
    site = fat_tree(leaves=32, nodes_per_leaf=32)
    start = time.process_time()
    assert len(errand(site).rounds) < 100
    assert time.process_time() - start < 20


def test_seats_carry_what_a_worker_of_the_site_would_be_given() -> None:
    planned = errand(fat_tree(leaves=2, nodes_per_leaf=2, nics=2))
    assert [(seat.node, seat.place, seat.gpu, seat.nic) for seat in planned.seats[:2]] == [
        ("n0001", 0, 0, "mlx5_0:1"),
        ("n0001", 1, 2, "mlx5_1:1"),
    ]
    assert planned.seats[1].env == {"UCX_TLS": "rc,cuda_copy", "UCX_IB_GID_INDEX": "3", "UCX_NET_DEVICES": "mlx5_1:1"}
    assert all(seat.in_gpu_memory for seat in planned.seats)
    assert planned.pause_us == 0
    assert planned.places == 2


def test_a_site_on_libfabric_names_no_device_for_ucx() -> None:
    site = fat_tree(leaves=2, nodes_per_leaf=2)
    transport = site.transport.model_copy(update={"backend": "libfabric", "libfabric": {"FI_PROVIDER": "cxi"}})
    planned = errand(site.model_copy(update={"transport": transport}))
    assert planned.backend == "LIBFABRIC"
    assert planned.seats[0].env["FI_PROVIDER"] == "cxi"
    assert "UCX_NET_DEVICES" not in planned.seats[0].env


def test_efa_over_ucx_is_refused() -> None:
    site = fat_tree(leaves=2, nodes_per_leaf=2)
    kind = site.node_types["box"]
    efa = kind.model_copy(update={"nics": (kind.nics[0].model_copy(update={"kind": NicKind.EFA}),)})
    with pytest.raises(PlacementError, match="libfabric"):
        errand(site.model_copy(update={"node_types": {"box": efa}}))


def test_an_unknown_rate_is_what_a_measurement_is_for() -> None:
    site = fat_tree(leaves=2, nodes_per_leaf=2, uplink=Rate(unknown=True, source="nobody has measured it"))
    assert len(pairs(errand(site))) == 12


def test_one_node_is_nothing_to_measure_and_an_unknown_one_is_named() -> None:
    with pytest.raises(PlacementError, match="1 node of site onebox"):
        plan_errand(shipped("onebox"), nodes=("node01",), seconds=1)
    with pytest.raises(NotFoundError, match="node09"):
        plan_errand(shipped("onebox"), nodes=("node01", "node09"), seconds=1)
