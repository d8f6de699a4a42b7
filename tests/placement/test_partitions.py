"""Pools in partitions of their own: who sits where, what Slurm is asked for, and what is refused."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcserve.errors import PlacementError
from hpcserve.fabric import fabric_of
from hpcserve.latency import LinearLatency
from hpcserve.nouns import Ask, Distance, Mode, Plan, Pool, Role, Service, Site, Slo, Workload
from hpcserve.placement import Speed, Weighed, outlook, place, weigh
from hpcserve.site import expand_hosts, load_site
from hpcserve.wire import decode_record, encode_record
from tests.placement.test_place import LLAMA_70B, service
from tests.placement.test_shapes import speed
from tests.strategies import allocation_of

MIXED = load_site(
    (Path(__file__).parents[1] / "golden" / "own_sites" / "mixed.yaml").read_text(encoding="utf-8"), source="mixed.yaml"
)
MODEL = LLAMA_70B.model_copy(update={"name": "small", "weights_bytes": 16_000_000_000})
FAST, WIDE = (expand_hosts(MIXED.partitions[name].hosts) for name in ("fast", "wide"))


def pools(prefill: int, decode: int, *, ranks: int = 4) -> tuple[Pool, ...]:
    """Prefill in the partition `fast`, decode in the service's, `wide`."""
    return (
        Pool(role=Role.PREFILL, workers=prefill, tensor_parallel=ranks, partition="fast"),
        Pool(role=Role.DECODE, workers=decode, tensor_parallel=ranks),
    )


def asked(**changes: Any) -> Service:
    load = Workload(input_tokens=4000, output_tokens=100)
    plain = {"mode": Mode.DISAGGREGATED, "partition": "wide", "pools": pools(2, 2), "workload": load}
    return service(MIXED, **(plain | changes))


def planned(site: Site = MIXED, /, **changes: Any) -> Plan:
    return place(fabric=fabric_of(site), site=site, shape=MODEL, service=asked(**changes))


def refusal(site: Site = MIXED, /, **changes: Any) -> str:
    with pytest.raises(PlacementError) as caught:
        planned(site, **changes)
    return str(caught.value)


def test_each_worker_sits_in_its_partition_and_each_partition_is_asked_for_by_itself() -> None:
    plan = planned(pools=pools(2, 3))
    for worker in plan.workers:
        assert worker.node in (FAST if worker.role == Role.PREFILL else WIDE)
    assert plan.asks == (
        Ask(partition="fast", nodes=1, gpus_per_node=8),
        Ask(partition="wide", nodes=3, gpus_per_node=4, switches=1),
    )
    assert plan.router.node == plan.worker("prefill-0").node
    assert decode_record(Plan, encode_record(plan)) == plan


def test_the_first_pool_has_the_head_node() -> None:
    plan = planned(pools=tuple(reversed(pools(1, 1))))
    assert [ask.partition for ask in plan.asks] == ["wide", "fast"]
    assert plan.router.node == plan.worker("decode-0").node


def test_a_distance_between_partitions_is_kept_by_naming_the_nodes() -> None:
    plan = planned(distance=Distance.ACROSS_LEAVES)
    assert [ask.nodelist for ask in plan.asks] == [("h1",), ("a1", "a2")]
    assert [ask.switches for ask in plan.asks] == [None, None]


def test_a_plan_of_one_partition_says_nothing_of_others() -> None:
    same = tuple(pool.model_copy(update={"partition": "fast"}) for pool in pools(1, 1))
    plan = planned(pools=same)
    assert plan.ask.partition == "fast"
    assert plan.asks == (plan.ask,)
    assert b"further_asks" not in encode_record(plan)


def test_aggregated_workers_stay_in_the_partitions_of_the_pools_they_replace() -> None:
    plan = planned(mode=Mode.AGGREGATED, pools=pools(1, 2))
    assert [worker.node in FAST for worker in plan.workers] == [True, False, False]
    assert [ask.nodes for ask in plan.asks] == [1, 2]


def test_granted_nodes_are_told_apart_by_partition() -> None:
    wanted = asked(pools=pools(2, 3))
    plan = place(fabric=fabric_of(MIXED), site=MIXED, shape=MODEL, service=wanted)
    others = {"h1": "h4", "a1": "a4"}
    elsewhere = plan.model_copy(
        update={
            "workers": tuple(
                worker.model_copy(
                    update={
                        "ranks": tuple(
                            rank.model_copy(update={"node": others.get(rank.node, rank.node)}) for rank in worker.ranks
                        )
                    }
                )
                for worker in plan.workers
            ),
            "router": plan.router.model_copy(update={"node": "h4"}),
        }
    )
    granted = place(
        fabric=fabric_of(MIXED),
        site=MIXED,
        shape=MODEL,
        service=wanted,
        allocation=allocation_of(MIXED, elsewhere),
        asked=plan,
    )
    assert {worker.node for worker in granted.workers if worker.role == Role.PREFILL} == {"h4"}
    assert {worker.node for worker in granted.workers if worker.role == Role.DECODE} == {"a2", "a3", "a4"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pools": pools(1, 5)}, "5 workers need 20 GPUs, and partition wide has 16 (4 nodes)"),
        ({"pools": pools(9, 1)}, "9 workers need 36 GPUs, and partition fast has 32 (4 nodes)"),
        ({"pools": pools(1, 1, ranks=8)}, "more than the 4 GPUs of the largest node of partition wide"),
        (
            {"distance": Distance.SAME_NODE},
            "`distance: same-node`: partition fast and partition wide have no node in common",
        ),
        ({"distance": Distance.SAME_LEAF}, "`distance: same-leaf`: "),
    ],
)
def test_a_refusal_names_the_partition_that_binds(changes: dict[str, Any], said: str) -> None:
    assert said in refusal(**changes)


def test_the_model_must_fit_the_gpus_of_each_partition() -> None:
    large = MODEL.model_copy(update={"weights_bytes": 180 * 2**30})
    fabric = fabric_of(MIXED)
    wanted = asked(pools=pools(1, 1))
    with pytest.raises(PlacementError, match=r"decode-0 needs 4\d\.\d GiB on each GPU .* has 39\.6 GiB"):
        place(fabric=fabric, site=MIXED, shape=large, service=wanted)
    inside = tuple(pool.model_copy(update={"partition": "fast"}) for pool in wanted.pools)
    place(fabric=fabric, site=MIXED, shape=large, service=wanted.model_copy(update={"pools": inside}))


def weighed(*, kv_tokens: int | None = None, speeds: Sequence[Speed] | None = None, **more: Any) -> Weighed:
    return weigh(
        fabric=fabric_of(MIXED),
        site=MIXED,
        shape=MODEL,
        service=asked(mode=Mode.AUTO, pools=pools(1, 1), slo=Slo(ttft_ms=2000.0, tpot_ms=15.0)),
        speeds=speeds or [speed(4, kv_tokens=kv_tokens)],
        **more,
    )


def test_each_partitions_gpus_say_what_room_its_workers_have() -> None:
    """Decode on GPUs of half the memory carries less than where a latency file says that room is no matter."""
    found = weighed()
    assert found.comparison.plan.verdict.basis == "simulation"
    assert "h100-sxm and a100-sxm GPUs were given the same times: made, TP 4" in found.comparison.plan.verdict.reasons
    pools_shown = {one.name: one.pools for one in found.comparison.alternatives}
    assert [pool.partition for pool in pools_shown["1 prefill TP 4 + 1 decode TP 4"]] == ["fast", None]


def goodput_of(found: Weighed) -> float:
    goodput = found.comparison.alternatives[0].goodput
    assert goodput is not None
    assert goodput.request_rate is not None
    return goodput.request_rate


def test_each_partitions_gpus_have_times_of_their_own() -> None:
    """Whatever the order of files; where there is none of a GPU, a line says whose were taken."""
    fast = replace(speed(4), gpu="h100_sxm", model_name="made/SmolLM2-135M-Instruct")
    slower = speed(4, decode_base_ms=12.0).model
    assert isinstance(slower, LinearLatency)
    slow = replace(
        fast, model=replace(slower, source="made, slower"), gpu="a100-sxm", model_name="smollm2-135m-instruct"
    )
    rate, again, alone = (goodput_of(weighed(speeds=speeds)) for speeds in ([fast, slow], [slow, fast], [fast]))
    assert rate == again < alone
    both = weighed(speeds=[slow, fast]).comparison.plan.verdict.reasons
    assert not any("given the same times" in line or "were taken for" in line for line in both)
    [line] = [line for line in weighed(speeds=[fast]).comparison.plan.verdict.reasons if "were taken for" in line]
    assert line == "times of made/SmolLM2-135M-Instruct on h100_sxm were taken for SmolLM2-135M-Instruct on a100-sxm"


@pytest.mark.parametrize("more", [{"gpus": 8}, {"alternatives": True}])
def test_other_shapes_are_not_looked_for_over_several_partitions(more: dict[str, Any]) -> None:
    with pytest.raises(PlacementError, match="chosen for one partition's GPUs"):
        weighed(**more)


def test_what_slurm_may_grant_is_not_looked_at_over_several_partitions() -> None:
    wanted = asked()
    fabric = fabric_of(MIXED)
    plan = place(fabric=fabric, site=MIXED, shape=MODEL, service=wanted)
    with pytest.raises(PlacementError, match="one partition"):
        outlook(fabric=fabric, site=MIXED, shape=MODEL, service=wanted, plan=plan)
