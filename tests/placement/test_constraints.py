"""What a worker may have and what Slurm is asked for: islands, rails, cores, what is shared, segments."""

from typing import Any

import pytest

from hpcserve.fabric import fabric_of
from hpcserve.nouns import Distance, Mode, NodeType, NvlinkIsland, Plan, Site
from hpcserve.placement import place
from tests.placement.test_place import H100, LLAMA_70B, ONEBOX, SMOLLM2, plan, pools, refusal, service, shipped

DGX, GB200, PCIE, SLINGSHOT = (shipped(name) for name in ("dgx-h100-su", "gb200-nvl72", "pcie-25gbe", "slingshot-a100"))
SMALL = LLAMA_70B.model_copy(update={"weights_bytes": None})


def with_type(site: Site, **changes: Any) -> Site:
    """The site with its only node type changed."""
    [(name, kind)] = site.node_types.items()
    return site.model_copy(update={"node_types": {name: kind.model_copy(update=changes)}})


def pairs_of_islands(**changes: Any) -> Site:
    """h100-ib with NVLink between two neighbours only."""
    rate = H100.node_types["hgx-h100"].nvlink[0].rate
    islands = tuple(NvlinkIsland(gpus=(first, first + 1), rate=rate) for first in range(0, 8, 2))
    return with_type(H100, nvlink=islands, **changes)


def gpus(of: Plan) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {worker.id: (worker.node, worker.ranks[0].gpus) for worker in of.workers}


def test_a_workers_ranks_stay_in_one_island() -> None:
    seats = gpus(plan(pairs_of_islands(), SMALL, pools=pools(2, 2, 2, 2)))
    assert {own for _, own in seats.values()} <= {(0, 1), (2, 3), (4, 5), (6, 7)}


def test_more_ranks_than_an_island_has_are_refused_unless_the_site_says_otherwise() -> None:
    said = refusal(pairs_of_islands(), SMALL, pools=pools(1, 4, 1, 4))
    assert (
        "tensor_parallel 4 of prefill-0 is more than the 2 GPUs of the largest NVLink island of partition gpu" in said
    )
    assert "tensor_parallel_across_islands: true" in said
    spread = plan(pairs_of_islands(tensor_parallel_across_islands=True), SMALL, pools=pools(1, 4, 1, 4))
    assert {len(own) for _, own in gpus(spread).values()} == {4}


def test_workers_that_no_node_holds_whole_are_counted() -> None:
    """Eight GPUs in islands of three, three and two: room for two workers of three ranks a node."""
    rate = H100.node_types["hgx-h100"].nvlink[0].rate
    islands = tuple(NvlinkIsland(gpus=own, rate=rate) for own in ((0, 1, 2), (3, 4, 5), (6, 7)))
    site = with_type(H100, nvlink=islands)
    nine = SMOLLM2.model_copy(update={"weights_bytes": None})
    said = refusal(site, nine, pools=pools(20, 3, 13, 3))
    assert "33 workers have tensor_parallel 3 or more, and partition gpu has room for 32 such" in said


def test_an_nvlink_domain_that_is_large_enough_is_named_and_why_it_is_no_help() -> None:
    said = refusal(GB200, SMALL, pools=pools(1, 8, 1, 8))
    assert "more than the 4 GPUs of the largest node" in said
    assert "NVLink domain rack1 is large enough, but an engine is started on one node" in said


def test_prefill_and_decode_meet_on_the_same_rail() -> None:
    """Two of each in two nodes: what crosses to the other node arrives on the rail that it left on."""
    both = plan(DGX, SMALL, pools=pools(2, 4, 2, 4))
    apart = [path for path in both.paths if path.distance != "same-node"]
    assert {path.distance for path in apart} == {"same-leaf"}
    assert all("spine" not in path.hops for path in apart)
    assert {path.rank_paths for path in both.paths} == {4}


def test_rails_that_nothing_joins_are_kept_apart() -> None:
    site = DGX.model_copy(
        update={
            "switches": tuple(
                switch.model_copy(update={"uplink": None}) for switch in DGX.switches if switch.rail is not None
            )
        }
    )
    far = plan(site, SMALL, pools=pools(1, 2, 1, 2), distance=Distance.SAME_LEAF)
    assert far.workers[0].ranks[0].nics == far.workers[1].ranks[0].nics


def test_no_path_names_what_keeps_the_nodes_apart() -> None:
    alone = tuple(switch.model_copy(update={"uplink": None}) for switch in ONEBOX.switches if switch.hosts is not None)
    said = refusal(ONEBOX.model_copy(update={"switches": alone}), SMOLLM2, pools=pools(2, 1, 1, 1))
    assert "no switch of the site joins `leaf1` and `leaf2`" in said


def test_a_rate_that_nobody_knows_is_named() -> None:
    """Between the two groups of a dragonfly whose links are unknown."""
    hosts = "g1n001,g2n001"
    few = SLINGSHOT.model_copy(
        update={
            "partitions": {name: one.model_copy(update={"hosts": hosts}) for name, one in SLINGSHOT.partitions.items()}
        }
    )
    said = refusal(few, SMALL, pools=pools(1, 4, 1, 4))
    assert said.startswith("2 workers find no seats on partition")
    assert "group1 to group2" in said
    assert "hpcserve site measure" in said


def test_a_limit_of_number_is_told_whatever_the_search_did() -> None:
    said = refusal(H100, SMOLLM2, pools=pools(64, 1, 1, 1), distance=Distance.SAME_LEAF)
    assert said.startswith("`distance: same-leaf`: all workers need 65 GPUs under one leaf switch")
    assert said.endswith("or write `distance: best`")


def test_what_workers_share_is_said_and_nothing_else_is_shared() -> None:
    shared = plan(PCIE, SMALL, pools=pools(8, 1, 8, 1), distance=Distance.ACROSS_LEAVES)
    seats: dict[tuple[str, str], list[str]] = {}
    for worker in shared.workers:
        for nic in worker.ranks[0].nics:
            seats.setdefault((nic, worker.node), []).append(worker.id)
    several = {where: who for where, who in seats.items() if len(who) > 1}
    assert several
    assert len(shared.shared) == len(several)
    for (nic, node), who in several.items():
        assert f"{', '.join(who[:-1])} and {who[-1]} share NIC {nic} of {node}" in shared.shared
    assert plan(H100, SMALL, pools=pools(2, 4, 2, 4)).shared == ()


def test_aggregated_workers_share_no_nic_as_they_move_no_kv() -> None:
    assert plan(PCIE, SMALL, pools=pools(2, 1, 2, 1), mode=Mode.AGGREGATED).shared == ()


def test_cores_that_are_too_few_are_shared_and_said() -> None:
    poor = with_type(H100, cores=3)
    together = plan(poor, SMALL, pools=pools(1, 4, 1, 4))
    assert {worker.ranks[0].cores for worker in together.workers} == {(0, 1, 2)}
    assert together.shared == ("prefill-0 and decode-0 share cores from 0 on of h01",)


def test_cores_are_those_nearest_to_the_gpus() -> None:
    """CPUs of two sockets in turn, as some BIOSes number them: even ones near the first four GPUs."""
    kind: NodeType = H100.node_types["hgx-h100"]
    even, odd = (",".join(map(str, range(first, 96, 2))) for first in (0, 1))
    site = with_type(H100, gpu=kind.gpu.model_copy(update={"cpus": (even,) * 4 + (odd,) * 4}))
    near = plan(site, SMALL, pools=pools(1, 4, 1, 4))
    assert [worker.ranks[0].cores for worker in near.workers] == [tuple(range(0, 96, 2)), tuple(range(1, 96, 2))]
    halves = plan(site, SMALL, pools=pools(1, 2, 1, 2))
    assert [worker.ranks[0].cores[:2] for worker in halves.workers] == [(0, 1), (48, 49)]


def test_a_block_topology_is_asked_for_a_segment() -> None:
    together = plan(GB200, SMALL, pools=pools(2, 4, 2, 4))
    assert (together.ask.nodes, together.ask.segment) == (4, 4)
    spare = plan(GB200, SMALL, pools=pools(2, 4, 2, 4), spares=2)
    assert (spare.ask.nodes, spare.ask.segment) == (4, 6)
    assert plan(GB200, SMALL, pools=pools(1, 2, 1, 2)).ask.segment is None  # one node
    assert plan(H100, SMALL, pools=pools(2, 8, 2, 8)).ask.segment is None  # a tree


def test_nodes_of_two_blocks_are_asked_for_by_halves_or_not_at_all() -> None:
    """20 workers of four ranks: ten nodes in each rack of 18, as many pairs as possible in both."""
    spread = plan(GB200, SMALL, pools=pools(10, 4, 10, 4))
    racks = [sum(node.startswith(rack) for node in spread.nodes) for rack in ("rack1", "rack2")]
    assert sum(racks) == spread.ask.nodes
    assert spread.ask.segment is not None
    assert all(count % spread.ask.segment == 0 for count in racks)


@pytest.mark.parametrize(("version", "segment"), [("23.11", None), ("24.05", 4), ("25.05.1", 4)])
def test_segments_came_with_slurm_24_05(version: str, segment: int | None) -> None:
    assert GB200.slurm is not None
    site = GB200.model_copy(update={"slurm": GB200.slurm.model_copy(update={"version": version})})
    assert plan(site, SMALL, pools=pools(2, 4, 2, 4)).ask.segment == segment


def test_more_nodes_than_a_block_plans_with_are_no_segment() -> None:
    assert GB200.slurm is not None
    site = GB200.model_copy(update={"slurm": GB200.slurm.model_copy(update={"block_sizes": (2,)})})
    assert plan(site, SMALL, pools=pools(2, 4, 2, 4)).ask.segment is None


def test_a_spare_that_was_granted_does_not_push_the_promised_nodes_aside() -> None:
    """The promise names nodes that thinning alone would leave out: they are kept."""
    asked = plan(H100, SMALL, pools=pools(1, 8, 1, 8))
    late = {"h01": "h07", "h02": "h08"}
    moved = asked.model_copy(
        update={
            "workers": tuple(
                worker.model_copy(
                    update={"ranks": tuple(rank.model_copy(update={"node": late[rank.node]}) for rank in worker.ranks)}
                )
                for worker in asked.workers
            )
        }
    )
    again = place(
        fabric=fabric_of(H100),
        site=H100,
        shape=SMALL,
        service=service(H100, pools=pools(1, 8, 1, 8)),
        asked=moved,
    )
    assert gpus(again) == gpus(moved)


def test_one_slow_nic_of_each_node_is_left_alone_where_there_is_room() -> None:
    """Greed would fill nodes; the slowest path goes first, so 16 workers take 16 nodes and leave the slow NIC."""
    kind = H100.node_types["hgx-h100"]
    slow = kind.nics[5].rate.model_copy(update={"nominal_gb_per_s": 25.0})
    nics = (*kind.nics[:5], kind.nics[5].model_copy(update={"rate": slow}), *kind.nics[6:])
    placed = plan(with_type(H100, nics=nics), SMALL, pools=pools(8, 4, 8, 4))
    assert all(5 not in own for _, own in gpus(placed).values())
    assert placed.assignment is not None
    assert placed.assignment.gap == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("distance", "shape", "words"),
    [
        (Distance.ACROSS_LEAVES, (60, 1, 65, 1), "no leaf switches with 60 GPUs for prefill and others with 65 for"),
        (Distance.SAME_LEAF, (1, 1, 57, 1), "nodes with 1 GPUs for prefill and others with 57 for decode"),
    ],
)
def test_a_distance_that_cannot_be_divided_so_says_the_numbers(
    distance: Distance, shape: tuple[int, int, int, int], words: str
) -> None:
    """By number alone there is room: 64 GPUs a leaf, 8 a node."""
    assert words in refusal(H100, SMALL, pools=pools(*shape), distance=distance)


def test_islands_that_hold_no_two_workers_of_a_node_say_what_the_distance_takes() -> None:
    rate = H100.node_types["hgx-h100"].nvlink[0].rate
    site = with_type(H100, nvlink=(NvlinkIsland(gpus=(0, 1, 2, 3, 4), rate=rate),))
    shape = SMALL.model_copy(update={"attention_heads": 48, "kv_heads": 48})
    said = refusal(site, shape, pools=pools(1, 3, 1, 3), distance=Distance.SAME_NODE)
    assert "it takes one node for all of them, and each worker's ranks in one node" in said
