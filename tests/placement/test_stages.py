"""Workers of several pipeline stages: each stage is placed, and meets the same stage of its partners."""

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, GpuAt, fabric_of
from hpcserve.model import shape_of
from hpcserve.nouns import Distance, Mode, NodeGroup, Plan, Pool, Rate, Role, Site, Workload
from hpcserve.placement import place
from hpcserve.placement.cost import handover
from hpcserve.placement.search import Search
from tests.model.configs import text_of
from tests.placement.brute import Brute, in_order, placed
from tests.placement.fabrics import measurements, renamed, staged_cases
from tests.placement.test_place import H100, LLAMA_70B, SMOLLM2, plan, refusal, service
from tests.strategies import Case, allocation_of

_MOST_SEATINGS = 8_000

slow = settings(
    max_examples=45, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


def pools(prefill: int, decode: int, ranks: int, stages: int) -> tuple[Pool, ...]:
    return tuple(
        Pool(role=role, workers=workers, tensor_parallel=ranks, pipeline_parallel=stages)
        for role, workers in ((Role.PREFILL, prefill), (Role.DECODE, decode))
    )


def aggregated(ranks: int, stages: int, workers: int = 1) -> dict[str, Any]:
    whole = Pool(role=Role.AGGREGATED, workers=workers, tensor_parallel=ranks, pipeline_parallel=stages)
    return {"pools": (whole,), "mode": Mode.AGGREGATED}


def nodes(of: Plan) -> dict[str, list[str]]:
    """The nodes of each worker's stages."""
    return {worker.id: [rank.node for rank in worker.ranks] for worker in of.workers}


def plan_of(case: Case, fabric: Fabric) -> Plan | None:
    try:
        return place(fabric=fabric, site=case.site, shape=case.shape, service=case.service)
    except PlacementError:
        return None


@slow
@given(case=staged_cases(), data=st.data())
def test_no_seating_of_stages_is_better_and_none_is_missed(case: Case, data: st.DataObject) -> None:
    measured = data.draw(st.none() | measurements(case.site))
    fabric = fabric_of(case.site, measured=measured)
    brute = Brute(case, fabric)
    assume(brute.count() <= _MOST_SEATINGS)
    found = plan_of(case, fabric)
    assert (None if found is None else brute.cost(placed(found))) == brute.best()
    if found is not None and measured is None:
        assert found.assignment is not None
        assert found.assignment.best


@slow
@given(case=staged_cases(roles=(Role.AGGREGATED, Role.AGGREGATED)))
def test_stages_that_hand_over_no_kv_are_joined_as_well_as_they_can_be(case: Case) -> None:
    fabric = fabric_of(case.site)
    brute = Brute(case, fabric)
    assume(brute.count() <= _MOST_SEATINGS)
    found = plan_of(case, fabric)
    assert (None if found is None else brute.cost(placed(found))) == brute.best()


@slow
@given(case=staged_cases())
def test_where_the_search_gives_up_its_bounds_are_bounds(case: Case) -> None:
    fabric = fabric_of(case.site)
    brute = Brute(case, fabric)
    assume(brute.count() <= _MOST_SEATINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search.__init__, "__kwdefaults__", {"limit": 0})
        stopped = plan_of(case, fabric)
    assume(stopped is not None)
    assert stopped is not None
    found, best, said = brute.cost(placed(stopped)), brute.best(), stopped.assignment
    assert said is not None
    assert best is not None
    assert found is not None
    assert round((said.slowest_at_least_ms or 0) * 1e6) <= best[1]
    assert round((said.traffic_at_least_ms or 0) * 1e6) <= best[2]
    assert said.nodes == found[5]
    assert said.nodes_at_least <= brute.fewest_nodes()
    naive = in_order(case, fabric)
    cost = brute.cost(naive) if naive is not None else None
    assert cost is None or found <= cost


@slow
@given(case=staged_cases(), data=st.data())
def test_names_and_order_of_nodes_do_not_change_the_cost(case: Case, data: st.DataObject) -> None:
    names = list(fabric_of(case.site).nodes)
    other_names = data.draw(st.permutations([f"x{number}" for number in range(len(names))]))
    other = Case(
        site=renamed(case.site, dict(zip(names, other_names, strict=True)), data.draw),
        shape=case.shape,
        service=case.service,
    )
    costs = []
    for one in (case, other):
        fabric = fabric_of(one.site)
        found = plan_of(one, fabric)
        costs.append(None if found is None else Brute(one, fabric).cost(placed(found)))
    assert costs[0] == costs[1]


@slow
@given(case=staged_cases())
def test_the_nodes_asked_for_give_the_plan_that_was_promised(case: Case) -> None:
    fabric = fabric_of(case.site)
    asked = plan_of(case, fabric)
    assume(asked is not None)
    assert asked is not None
    for promise in (asked, None):
        granted = place(
            fabric=fabric,
            site=case.site,
            shape=case.shape,
            service=case.service,
            allocation=allocation_of(case.site, asked),
            asked=promise,
        )
        assert placed(granted) == placed(asked)


def thin(gb_per_s: float, hosts: str = "h[01-02]") -> Site:
    """Two nodes of h100-ib whose NICs carry little: DistServe's case of low affinity between nodes."""
    kind = H100.node_types["hgx-h100"]
    rate = Rate(effective_gb_per_s=gb_per_s, source="made")
    kind = kind.model_copy(update={"nics": tuple(nic.model_copy(update={"rate": rate}) for nic in kind.nics)})
    return H100.model_copy(
        update={
            "node_types": {"hgx-h100": kind},
            "partitions": {"gpu": H100.partitions["gpu"].model_copy(update={"hosts": hosts})},
        }
    )


def test_across_a_thin_link_stages_of_prefill_and_decode_stand_side_by_side() -> None:
    """DistServe, OSDI 2024, section 4.2: KV stays in the nodes, only activations cross."""
    found = plan(thin(3.0), LLAMA_70B, pools=pools(1, 1, 4, 2))
    assert nodes(found)["prefill-0"] == nodes(found)["decode-0"]
    assert len(set(nodes(found)["prefill-0"])) == 2
    [path] = found.paths
    assert (path.distance, path.hops[1]) == ("same-node", "nvlink")
    assert path.rank_paths == 8
    assert found.assignment is not None
    assert found.assignment.best


def test_a_worker_in_each_node_would_pay_for_the_thin_link() -> None:
    """What the seating that fills nodes in order costs, which the best one avoids: all KV by eight thin NICs."""
    site = thin(3.0)
    case = Case(site=site, shape=LLAMA_70B, service=service(site, pools=pools(1, 1, 4, 2)))
    brute = Brute(case, fabric_of(site))
    naive, found = in_order(case, brute.fabric), plan(site, LLAMA_70B, pools=case.service.pools)
    assert naive is not None
    assert [node for node, _ in naive] == ["h01", "h01", "h02", "h02"]
    worse, best = brute.cost(naive), brute.cost(placed(found))
    assert worse is not None
    assert best is not None
    kv_bytes = case.service.workload.input_tokens * LLAMA_70B.kv_bytes_per_token
    assert worse[1] == pytest.approx(kv_bytes / 8 / 3.0, rel=1e-6)
    assert best[1] < worse[1] / 100
    assert best[3] > worse[3]  # the activations, which pay for it


def test_every_stage_of_several_workers_stays_in_its_node() -> None:
    found = nodes(plan(thin(3.0), LLAMA_70B, pools=pools(2, 2, 2, 2)))
    assert len({tuple(own) for own in found.values()}) == 1


def test_all_stages_of_a_handover_count_on_a_link_that_they_share() -> None:
    """One NIC a node, two stages of one GPU on each: it carries the KV of both."""
    kind = H100.node_types["hgx-h100"]
    nic = kind.nics[0].model_copy(update={"gpus": (0, 1), "rate": Rate(effective_gb_per_s=10.0, source="made")})
    kind = kind.model_copy(
        update={"nics": (nic,), "nvlink": (), "gpu": kind.gpu.model_copy(update={"count": 2})},
    )
    site = H100.model_copy(
        update={
            "node_types": {"hgx-h100": kind},
            "nodes": (NodeGroup(hosts="h[01-16]", type="hgx-h100"),),
        }
    )
    shape = LLAMA_70B.model_copy(update={"weights_bytes": None})
    load = Workload(input_tokens=1000, output_tokens=10)
    [two] = plan(site, shape, pools=pools(1, 1, 1, 2), workload=load, distance=Distance.SAME_LEAF).paths
    [one] = plan(site, shape, pools=pools(1, 1, 1, 1), workload=load, distance=Distance.SAME_LEAF).paths
    assert two.kv_bytes == one.kv_bytes == 327_680_000
    assert one.transfer_ms == pytest.approx(32.768)
    spread = plan(site, shape, pools=pools(1, 1, 1, 2), workload=load, distance=Distance.SAME_LEAF)
    assert all(len(set(own)) == 2 for own in nodes(spread).values())  # a NIC for each stage halves it
    assert two.transfer_ms == pytest.approx(32.768 / 2)
    here, there = ([[GpuAt(node, gpu)] for gpu in (0, 1)] for node in ("h01", "h02"))
    shared = handover(fabric_of(site), shape, tokens=1000, prefill=here, decode=there)
    assert (shared.kv_bytes, shared.rank_paths) == (327_680_000, 2)
    assert shared.transfer_ms == pytest.approx(32.768)


def test_the_kv_of_all_stages_together_is_the_models() -> None:
    shape = shape_of(text_of("gpt-oss-120b"), name="gpt-oss-120b", source="config.json", weights_bytes=None)
    load = Workload(input_tokens=4096, output_tokens=16)
    [path] = plan(H100, shape, pools=pools(1, 1, 1, 2), workload=load).paths
    assert path.kv_bytes == 155_713_536


def test_stages_that_hold_unlike_layers_are_refused_where_nobody_knows_which() -> None:
    shape = shape_of(text_of("gpt-oss-120b"), name="gpt-oss-120b", source="config.json", weights_bytes=None)
    unknown = shape.model_copy(update={"group_of_layer": ()})
    assert "nobody knows which of its layers keep what" in refusal(H100, unknown, pools=pools(1, 1, 1, 2))


def test_unequal_stages_are_refused_with_the_reason() -> None:
    one, two = pools(1, 1, 4, 1), pools(1, 1, 4, 2)
    said = refusal(H100, LLAMA_70B, pools=(two[0], one[1]))
    assert said.startswith("pipeline_parallel 2 of prefill and 1 of decode differ")
    assert said.endswith("use the same pipeline_parallel for both")


def test_more_stages_than_layers_are_refused() -> None:
    few = SMOLLM2.model_copy(update={"layers": 3, "weights_bytes": None})
    assert "pipeline_parallel 4 of prefill-0 is more than its 3 layers" in refusal(H100, few, pools=pools(1, 1, 1, 4))


def test_stages_divide_the_weights() -> None:
    """141 GB on GPUs of 80 GiB: two stages of one GPU hold them, one does not."""
    assert "raise tensor_parallel or pipeline_parallel" in refusal(H100, LLAMA_70B, pools=pools(1, 1, 1, 1))
    assert len(plan(H100, LLAMA_70B, pools=pools(1, 1, 1, 2)).workers[0].ranks) == 2


def test_no_room_for_stages_says_so() -> None:
    said = refusal(thin(3.0), LLAMA_70B, pools=pools(2, 1, 4, 2))
    assert said.startswith("3 workers need 24 GPUs, and partition gpu has 16")
    assert "less tensor_parallel or pipeline_parallel" in said
    same_node = refusal(thin(3.0), LLAMA_70B, pools=pools(1, 1, 8, 1), distance=Distance.SAME_NODE)
    assert "all workers need 16 GPUs of one node" in same_node
    staged = refusal(thin(3.0, "h[01-04]"), LLAMA_70B, pools=pools(1, 1, 8, 2), distance=Distance.SAME_NODE)
    assert "one stage of all workers needs 16 GPUs of one node" in staged


def test_aggregated_stages_stand_in_one_node_where_it_has_room() -> None:
    found = plan(H100, LLAMA_70B, **aggregated(4, 2, workers=2))
    assert {len(set(own)) for own in nodes(found).values()} == {1}
    assert not [line for line in found.verdict.reasons if "cannot be started" in line]
    wide = plan(H100, LLAMA_70B, **aggregated(8, 2))
    assert len(set(nodes(wide)["aggregated-0"])) == 2
    assert "it cannot be started: aggregated-0 spans h01, h02: that is planned, not started" in wide.verdict.reasons[-1]


def test_what_vllm_cannot_hand_over_is_planned_and_said() -> None:
    found = plan(thin(3.0), LLAMA_70B, pools=pools(1, 1, 4, 2))
    assert "it cannot be started: prefill-0 has 2 pipeline stages, and vLLM 0.32" in found.verdict.reasons[-1]
    assert found.verdict.reasons[-1].endswith("or mode: aggregated")
    assert not [line for line in plan(H100, LLAMA_70B, pools=pools(1, 1, 4, 1)).verdict.reasons if "started" in line]
