from pathlib import Path
from typing import Any

import pytest

from hpcserve.errors import NotFoundError, PlacementError
from hpcserve.fabric import fabric_of, rank_flows
from hpcserve.nouns import (
    Allocation,
    Distance,
    Mode,
    ModelShape,
    NodeGroup,
    Plan,
    Pool,
    Role,
    RouterSettings,
    Service,
    Site,
    Workload,
)
from hpcserve.placement import place
from hpcserve.placement.search import Search
from hpcserve.render import asked_options
from hpcserve.site import load_service, load_site
from tests.strategies import allocation_of

ROOT = Path(__file__).parents[2]
SMOLLM2 = ModelShape(
    name="SmolLM2-135M-Instruct",
    architecture="LlamaForCausalLM",
    layers=30,
    attention_heads=9,
    kv_heads=3,
    head_dim=64,
    max_context_tokens=8192,
    kv_dtype="bfloat16",
    kv_bytes_per_token=23_040,
    weights_bytes=269_060_552,
)
LLAMA_70B = SMOLLM2.model_copy(
    update={
        "name": "Llama-3.1-70B",
        "layers": 80,
        "attention_heads": 64,
        "kv_heads": 8,
        "head_dim": 128,
        "max_context_tokens": 131_072,
        "kv_bytes_per_token": 327_680,
        "weights_bytes": 141_107_412_992,
    }
)


def shipped(name: str) -> Site:
    return load_site((ROOT / "site_configs" / f"{name}.yaml").read_text(), source=name)


ONEBOX, H100 = shipped("onebox"), shipped("h100-ib")


def service(site: Site = ONEBOX, /, **changes: Any) -> Service:
    text = (ROOT / "docs" / "examples" / "smollm2.yaml").read_text()
    plain = load_service(text, source="smollm2.yaml", site=ONEBOX)
    return plain.model_copy(update={"partition": next(iter(site.partitions)), **changes})


def pools(prefill: int, prefill_ranks: int, decode: int, decode_ranks: int) -> tuple[Pool, ...]:
    return (
        Pool(role=Role.PREFILL, workers=prefill, tensor_parallel=prefill_ranks),
        Pool(role=Role.DECODE, workers=decode, tensor_parallel=decode_ranks),
    )


def plan(site: Site = ONEBOX, shape: ModelShape = SMOLLM2, /, **changes: Any) -> Plan:
    return place(fabric=fabric_of(site), site=site, shape=shape, service=service(site, **changes))


def where(of: Plan) -> dict[str, str]:
    return {worker.id: worker.node for worker in of.workers}


def refusal(site: Site = ONEBOX, shape: ModelShape = SMOLLM2, /, **changes: Any) -> str:
    with pytest.raises(PlacementError) as caught:
        plan(site, shape, **changes)
    assert caught.value.remedy
    return str(caught.value)


def test_best_on_the_one_machine_cluster_is_one_leaf() -> None:
    near = plan()
    assert where(near) == {"prefill-0": "node01", "decode-0": "node02"}
    assert near.router.node == "node01"
    [path] = near.paths
    assert path.hops == ("node01.data0", "leaf1", "node02.data0")
    assert path.kv_bytes == 1024 * 23_040
    assert path.transfer_ms == pytest.approx(197.4, abs=0.05)
    assert (near.ask.nodes, near.ask.gpus_per_node, near.ask.switches, near.ask.nodelist) == (2, 1, 1, None)


def test_across_leaves_asks_for_the_very_nodes() -> None:
    far = plan(distance=Distance.ACROSS_LEAVES)
    [path] = far.paths
    assert path.distance == "across-leaves"
    assert path.hops == ("node01.data0", "leaf1", "spine", "leaf2", "node03.data0")
    assert path.transfer_ms == pytest.approx(987.2, abs=0.05)
    assert (far.ask.nodelist, far.ask.switches) == (("node01", "node03"), None)


def test_every_pair_has_its_cost() -> None:
    four = plan(pools=pools(2, 1, 2, 1))
    assert {(path.prefill, path.decode) for path in four.paths} == {
        (f"prefill-{p}", f"decode-{d}") for p in range(2) for d in range(2)
    }
    assert four.ask.switches == 2


def test_tensor_parallel_ranks_use_their_own_rails() -> None:
    """8 rails of 38 GB/s: what 1.342 GB takes; 4.4 ms."""
    wide = plan(H100, LLAMA_70B, pools=pools(1, 8, 1, 8), workload=Workload(input_tokens=4096, output_tokens=1))
    [path] = wide.paths
    assert path.gb_per_s == pytest.approx(8 * 38)
    assert path.transfer_ms == pytest.approx(4.415, abs=0.001)
    assert [rank.nics for worker in wide.workers for rank in worker.ranks] == [
        tuple(f"mlx5_{number}:1" for number in range(8))
    ] * 2


def test_both_phases_in_one_nvlink_island_where_they_fit() -> None:
    small = plan(H100, LLAMA_70B, pools=pools(1, 4, 1, 4))
    assert set(where(small).values()) == {"h01"}
    assert "nvlink" in small.paths[0].hops
    gpus = [gpu for worker in small.workers for gpu in worker.ranks[0].gpus]
    assert sorted(gpus) == list(range(8))
    cores = [core for worker in small.workers for core in worker.ranks[0].cores]
    assert sorted(cores) == list(range(96))


def test_the_fast_nics_are_found_where_greed_takes_the_first_gpu() -> None:
    """One slow and one fast NIC a node, and a slow host: only GPU 1 of two nodes gives the fast path."""
    slow, fast = (
        ONEBOX.node_types["slot"].nics[0].model_copy(update={"name": name, "gpus": gpus, "rate": rate})
        for name, gpus, rate in (
            ("eth0", (0,), ONEBOX.node_types["slot"].host_path),
            ("eth1", (1,), H100.node_types["hgx-h100"].host_path),
        )
    )
    slot = ONEBOX.node_types["slot"].model_copy(
        update={"nics": (slow, fast), "gpu": ONEBOX.node_types["slot"].gpu.model_copy(update={"count": 2})}
    )
    placed = plan(ONEBOX.model_copy(update={"node_types": {"slot": slot}}))
    assert [worker.ranks[0].gpus for worker in placed.workers] == [(1,), (1,)]
    assert where(placed) == {"prefill-0": "node01", "decode-0": "node02"}


@pytest.mark.parametrize(
    ("prefill_ranks", "decode_ranks", "flows"),
    [
        (1, 1, [(0, 0, 1.0)]),
        (2, 2, [(0, 0, 1.0), (1, 1, 1.0)]),
        (1, 2, [(0, 0, 1.0), (0, 1, 1.0)]),
        (4, 2, [(0, 0, 0.5), (1, 0, 0.5), (2, 1, 0.5), (3, 1, 0.5)]),
    ],
)
def test_every_decode_rank_gets_all_that_it_keeps(
    prefill_ranks: int, decode_ranks: int, flows: list[tuple[int, int, float]]
) -> None:
    assert list(rank_flows(prefill_ranks, decode_ranks)) == flows


@pytest.mark.parametrize(
    ("site", "shape", "changes", "words"),
    [
        (ONEBOX, SMOLLM2, {"distance": Distance.SAME_NODE}, ["same-node", "2 GPUs", "has 1"]),
        (ONEBOX, SMOLLM2, {"distance": Distance.SAME_LEAF, "pools": pools(2, 1, 1, 1)}, ["3 GPUs", "leaf1", "has 2"]),
        (ONEBOX, SMOLLM2, {"pools": pools(3, 1, 2, 1)}, ["5 workers", "5 GPUs", "partition main has 4"]),
        (ONEBOX, SMOLLM2, {"pools": pools(1, 3, 1, 1)}, ["tensor_parallel 3 of prefill-0", "1 GPUs of the largest"]),
        (H100, SMOLLM2, {"pools": pools(1, 4, 1, 1)}, ["tensor_parallel 4", "9 attention heads", "1, 3, 9"]),
        (H100, LLAMA_70B, {"pools": pools(1, 1, 1, 8)}, ["prefill-0 needs", "GiB", "79.6"]),
        (
            H100,
            LLAMA_70B.model_copy(update={"kv_heads": 2, "weights_bytes": None}),
            {"pools": pools(1, 8, 1, 4)},
            ["only 2 KV heads"],
        ),
        (
            ONEBOX,
            SMOLLM2,
            {"workload": Workload(input_tokens=8192, output_tokens=1)},
            ["8193 tokens", "8192 tokens"],
        ),
    ],
)
def test_what_cannot_be_placed_names_the_limit(
    site: Site, shape: ModelShape, changes: dict[str, Any], words: list[str]
) -> None:
    text = refusal(site, shape, **changes)
    assert [word for word in words if word not in text] == []


def test_across_leaves_needs_two_leaves() -> None:
    one_leaf = ONEBOX.model_copy(
        update={"partitions": {"main": ONEBOX.partitions["main"].model_copy(update={"hosts": "node[01-02]"})}}
    )
    assert "leaf1" in refusal(one_leaf, distance=Distance.ACROSS_LEAVES)


def test_a_partition_that_the_site_lacks() -> None:
    with pytest.raises(NotFoundError, match="gpu"):
        plan(partition="gpu")


def test_verdict_with_a_known_speed_has_its_numbers_and_auto_obeys() -> None:
    """The published case: 4096 tokens of Llama-70B prefill in 390 ms; eight rails take 1.1 %, one slow link 110 %."""
    load = Workload(input_tokens=4096, output_tokens=100, prefill_tokens_per_s=4096 / 0.390)
    good = plan(H100, LLAMA_70B, pools=pools(1, 8, 1, 8), mode=Mode.AUTO, workload=load)
    assert good.verdict.disaggregate
    assert good.mode == "disaggregated"
    assert "1.1%" in good.verdict.reasons[0]
    assert good.verdict.prefill_ms == pytest.approx(390)

    load = Workload(input_tokens=512, output_tokens=16, prefill_tokens_per_s=600.0)
    bad = plan(mode=Mode.AUTO, workload=load)
    assert not bad.verdict.disaggregate
    assert (bad.mode, bad.paths, [worker.id for worker in bad.workers]) == (
        "aggregated",
        (),
        ["aggregated-0", "aggregated-1"],
    )
    assert bad.verdict.worst_transfer_ms == pytest.approx(98.7, abs=0.05)
    forced = plan(mode=Mode.DISAGGREGATED, workload=load)
    assert forced.mode == "disaggregated"
    assert bad.verdict.reasons[:-1] == forced.verdict.reasons
    assert bad.verdict.reasons[-1].endswith("workers of their own, which was not taken")


def test_a_cached_prefix_moves_but_is_not_computed() -> None:
    load = Workload(input_tokens=512, output_tokens=16, cached_prefix_tokens=480, prefill_tokens_per_s=500.0)
    cached = plan(workload=load).verdict
    assert cached.prefill_ms == pytest.approx(64)
    assert cached.worst_transfer_ms == pytest.approx(98.7, abs=0.05)


def test_an_unknown_speed_is_no_claim() -> None:
    unmeasured = service().workload.model_copy(update={"prefill_tokens_per_s": None})
    unknown = plan(mode=Mode.AUTO, workload=unmeasured)
    assert unknown.mode == "aggregated"
    assert unknown.verdict.prefill_ms is None
    assert "workload.prefill_tokens_per_s" in " ".join(unknown.verdict.reasons)


def test_auto_falls_back_to_aggregated_where_the_phases_cannot_be_apart() -> None:
    alone = plan(mode=Mode.AUTO, distance=Distance.SAME_NODE)
    assert alone.mode == "aggregated"
    assert "same-node" in " ".join(alone.verdict.reasons)


def test_aggregated_pools_are_what_aggregated_mode_starts() -> None:
    whole = plan(
        mode=Mode.AGGREGATED, pools=(*pools(1, 1, 1, 1), Pool(role=Role.AGGREGATED, workers=3, tensor_parallel=1))
    )
    assert [worker.id for worker in whole.workers] == ["aggregated-0", "aggregated-1", "aggregated-2"]
    assert whole.ask.switches is None


def test_ports_come_from_the_agents_blocks() -> None:
    site = H100
    asked = plan(site, LLAMA_70B, pools=pools(1, 4, 1, 4))
    granted = place(
        fabric=fabric_of(site),
        site=site,
        shape=LLAMA_70B,
        service=service(site, pools=pools(1, 4, 1, 4)),
        allocation=allocation_of(site, asked),
        asked=asked,
    )
    assert [(worker.port, worker.side_channel_port) for worker in granted.workers] == [
        (20_000, 20_001),
        (20_400, 20_401),
    ]
    assert granted.router.port == 20_800


def test_blocks_of_ports_that_are_just_too_small_are_refused() -> None:
    """One port for HTTP and one for each rank's side channel."""
    asked = plan(H100, LLAMA_70B, pools=pools(1, 4, 1, 4))
    granted = allocation_of(H100, asked)

    def again(count: int) -> Plan:
        node = granted.nodes[0].model_copy(
            update={"ports": tuple((first, count) for first, _ in granted.nodes[0].ports)}
        )
        return place(
            fabric=fabric_of(H100),
            site=H100,
            shape=LLAMA_70B,
            service=service(H100, pools=pools(1, 4, 1, 4)),
            allocation=granted.model_copy(update={"nodes": (node, *granted.nodes[1:])}),
            asked=asked,
        )

    assert again(5).granted
    with pytest.raises(PlacementError, match="prefill-0 needs 5 ports on h01, and the agent holds 4 for GPU slot 0"):
        again(4)


def test_the_users_router_port_wins() -> None:
    chosen = service(router=RouterSettings(port=8123))
    asked = place(fabric=fabric_of(ONEBOX), site=ONEBOX, shape=SMOLLM2, service=chosen)
    granted = place(
        fabric=fabric_of(ONEBOX),
        site=ONEBOX,
        shape=SMOLLM2,
        service=chosen,
        allocation=allocation_of(ONEBOX, asked),
        asked=asked,
    )
    assert asked.router.port == granted.router.port == 8123


def test_other_nodes_than_asked_for_are_placed_anew_in_the_mode_asked_for() -> None:
    load = Workload(input_tokens=512, output_tokens=16, prefill_tokens_per_s=600.0)
    asked = plan(mode=Mode.DISAGGREGATED, workload=load)
    far = plan(mode=Mode.DISAGGREGATED, workload=load, distance=Distance.ACROSS_LEAVES)
    granted = place(
        fabric=fabric_of(ONEBOX),
        site=ONEBOX,
        shape=SMOLLM2,
        service=service(mode=Mode.AUTO, workload=load),
        allocation=allocation_of(ONEBOX, far),
        asked=asked,
    )
    assert granted.mode == "disaggregated"
    assert granted.nodes == ("node01", "node03")
    assert granted.paths[0].distance == "across-leaves"


def test_a_granted_node_that_the_site_lacks_is_named() -> None:
    asked = plan()
    allocation = allocation_of(ONEBOX, asked)
    stranger = allocation.nodes[0].model_copy(update={"name": "node99"})
    with pytest.raises(NotFoundError, match="node99"):
        place(
            fabric=fabric_of(ONEBOX),
            site=ONEBOX,
            shape=SMOLLM2,
            service=service(),
            allocation=allocation.model_copy(update={"nodes": (stranger,)}),
        )


def test_a_search_that_gives_up_says_how_far_it_can_be_from_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search.__init__, "__kwdefaults__", {"limit": 3})
    cut_short = plan(pools=pools(2, 1, 2, 1))
    assert len(set(where(cut_short).values())) == 4
    assert cut_short.assignment is not None
    assert not cut_short.assignment.best
    assert cut_short.assignment.gap == 0
    assert cut_short.verdict.reasons[-1].startswith("no assignment has a faster slowest path or less traffic")


def test_a_large_site_is_planned_in_seconds() -> None:
    leaves = 128
    kind = next(iter(H100.node_types))
    uplink = H100.switches[0].uplink
    assert uplink is not None
    large = H100.model_copy(
        update={
            "nodes": (H100.nodes[0].model_copy(update={"hosts": "h[0001-4096]", "type": kind}),),
            "partitions": {"gpu": H100.partitions["gpu"].model_copy(update={"hosts": "h[0001-4096]"})},
            "switches": (
                *(
                    H100.switches[0].model_copy(
                        update={"name": f"leaf{leaf}", "hosts": f"h[{32 * leaf + 1:04}-{32 * leaf + 32:04}]"}
                    )
                    for leaf in range(leaves)
                ),
                H100.switches[2].model_copy(update={"switches": f"leaf[0-{leaves - 1}]"}),
            ),
        }
    )
    wide = plan(large, LLAMA_70B, pools=pools(4, 8, 4, 8), distance=Distance.ACROSS_LEAVES)
    assert wide.ask.nodes == 8
    assert {path.distance for path in wide.paths} == {"across-leaves"}


def mixed(first_gpus: int, second_gpus: int) -> Site:
    """h100-ib with nodes of other sizes under its second leaf."""
    kind = H100.node_types["hgx-h100"]
    kinds = {
        name: kind.model_copy(
            update={
                "gpu": kind.gpu.model_copy(update={"count": count}),
                "nics": kind.nics[:count],
                "nvlink": (),
            }
        )
        for name, count in (("first", first_gpus), ("second", second_gpus))
    }
    groups = tuple(NodeGroup(hosts=hosts, type=name) for hosts, name in (("h[01-08]", "first"), ("h[09-16]", "second")))
    return H100.model_copy(update={"node_types": kinds, "nodes": groups})


def test_the_largest_nodes_and_leaves_are_the_limit_that_is_named() -> None:
    site = mixed(2, 4)
    assert plan(site, LLAMA_70B, pools=pools(1, 4, 1, 4)).ask.gpus_per_node == 4
    assert "more than the 4 GPUs of the largest node" in refusal(site, LLAMA_70B, pools=pools(1, 8, 1, 4))
    said = refusal(site, SMOLLM2, pools=pools(32, 1, 1, 1), distance=Distance.SAME_LEAF)
    assert "the largest of partition gpu, leaf2, has 32" in said


def test_weights_and_kv_are_needed_together() -> None:
    """Of 80 GiB, 131.4 / 2 for weights; the KV of 60,000 tokens takes 9.2 on each of two GPUs, of 100,000 15.3."""
    fits = Workload(input_tokens=60_000, output_tokens=1)
    assert plan(H100, LLAMA_70B, pools=pools(1, 2, 1, 2), workload=fits).mode == "disaggregated"
    said = refusal(H100, LLAMA_70B, pools=pools(1, 2, 1, 2), workload=Workload(input_tokens=100_000, output_tokens=1))
    assert "prefill-0 needs 81.0 GiB on each GPU for weights and the KV of one request" in said


def test_a_verdict_against_says_which_path_would_do() -> None:
    """11.8 MB in a tenth of 512 / 600 s."""
    load = Workload(input_tokens=512, output_tokens=16, prefill_tokens_per_s=600.0)
    far = plan(distance=Distance.ACROSS_LEAVES, workload=load)
    assert any(reason.endswith("these prompts would need a path of 0.138 GB/s") for reason in far.verdict.reasons)


def test_parallelism_that_does_not_fit_the_heads_names_what_does() -> None:
    assert "use one of 1, 3, 9" in refusal(H100, SMOLLM2, pools=pools(1, 2, 1, 2))


def test_on_one_node_no_switches_are_asked_for() -> None:
    alone = plan(H100, LLAMA_70B, pools=pools(1, 4, 1, 4))
    assert (alone.ask.nodes, alone.ask.switches, alone.ask.nodelist) == (1, None, None)


def test_a_cost_names_the_source_of_the_rate_that_binds() -> None:
    """One rail of 38 GB/s binds, not the uplink of 32 of them."""
    far = plan(H100, LLAMA_70B, pools=pools(1, 4, 1, 4), distance=Distance.ACROSS_LEAVES)
    assert far.paths[0].source.startswith("UCX's own estimate for RDMA reads on one NDR path")


def test_an_unknown_speed_says_from_which_prefill_time_it_would_pay() -> None:
    """Ten times the 98.7 ms that the KV takes."""
    unknown = plan(workload=Workload(input_tokens=512, output_tokens=16))
    assert "if the prefill of 512 tokens takes more than 987.2 ms" in unknown.verdict.reasons[0]


def small_first(first_gib: float) -> Site:
    """h100-ib with GPUs of another size under its first leaf, which is listed first."""
    kind = H100.node_types["hgx-h100"]
    small = kind.model_copy(update={"gpu": kind.gpu.model_copy(update={"memory_gib": first_gib})})
    groups = (NodeGroup(hosts="h[01-08]", type="small"), NodeGroup(hosts="h[09-16]", type="hgx-h100"))
    return H100.model_copy(update={"node_types": {**H100.node_types, "small": small}, "nodes": groups})


def test_gpus_that_are_too_small_for_the_model_are_neither_used_nor_granted() -> None:
    """70B at tensor_parallel 4 has 33 GiB of weights on each GPU: a partition may have 24 GiB ones beside others."""
    site = small_first(24.0)
    made = plan(site, LLAMA_70B, pools=pools(1, 4, 1, 4))
    assert set(where(made).values()) == {"h09"}
    assert made.ask.exclude == tuple(f"h{number:02}" for number in range(1, 9))
    assert "--exclude=h[01-08]" in asked_options(plan=made, site=site, service=service(site, pools=pools(1, 4, 1, 4)))
    said = refusal(site, LLAMA_70B, pools=pools(9, 4, 9, 4))
    assert "18 workers need 72 GPUs, and partition gpu (GPUs of 32.9 GiB or more) has 64 (8 nodes)" in said
    large_enough = plan(small_first(40.0), LLAMA_70B, pools=pools(1, 4, 1, 4))
    assert set(where(large_enough).values()) == {"h01"}
    assert "exclude" not in large_enough.ask.model_dump()


def test_granted_nodes_with_gpus_that_are_too_small_are_not_used() -> None:
    site = small_first(24.0)
    asked = plan(H100, LLAMA_70B, pools=pools(1, 4, 1, 4))
    granted = allocation_of(site, asked)
    made = place(
        fabric=fabric_of(site),
        site=site,
        shape=LLAMA_70B,
        service=service(site, pools=pools(1, 4, 1, 4)),
        allocation=Allocation(nodes=(granted.nodes[0], granted.nodes[0].model_copy(update={"name": "h09"}))),
    )
    assert set(where(made).values()) == {"h09"}


def test_too_small_gpus_are_excluded_beside_nodes_that_are_named_and_told_where_a_distance_fails() -> None:
    """A spare is any node of the partition, so that naming the others is not enough."""
    kind = H100.node_types["hgx-h100"]
    small = kind.model_copy(update={"gpu": kind.gpu.model_copy(update={"memory_gib": 24.0})})
    groups = (NodeGroup(hosts="h[01-02]", type="small"), NodeGroup(hosts="h[03-16]", type="hgx-h100"))
    site = H100.model_copy(update={"node_types": {**H100.node_types, "small": small}, "nodes": groups})
    ask = plan(site, LLAMA_70B, pools=pools(1, 4, 1, 4), distance=Distance.ACROSS_LEAVES, spares=1).ask
    assert ask.nodelist == ("h03", "h09")
    assert ask.exclude == ("h01", "h02")
    said = refusal(small_first(24.0), LLAMA_70B, pools=pools(1, 4, 1, 4), distance=Distance.ACROSS_LEAVES)
    assert "all nodes of partition gpu (GPUs of 32.9 GiB or more) are under one leaf switch, leaf2" in said
