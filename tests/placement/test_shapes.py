"""Shapes and the simulated verdict: what may be chosen, what is, and that the words agree with the simulation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.errors import NotFoundError, PlacementError
from hpcserve.fabric import fabric_of
from hpcserve.latency import LinearLatency, PipelinedLatency
from hpcserve.model import cut_of
from hpcserve.nouns import Alternative, Mode, Pool, Role, RouterSettings, Service, Site, Slo, Workload
from hpcserve.placement import Speed, Weighed, place, weigh
from hpcserve.placement.shape import UNSIMULATED, legal_ranks, quick_rate, shapes_for
from hpcserve.placement.shape_rates import largest_batch, prefill_rate
from hpcserve.placement.shape_speeds import Speeds, scheduling_of, speeds_for
from hpcserve.simulate import Scheduling
from tests.placement.test_place import H100, LLAMA_70B, pools, service, shipped, small_first
from tests.strategies import allocation_of

PCIE = shipped("pcie-25gbe")
NODE = H100.node_types["hgx-h100"]
SMALL = LLAMA_70B.model_copy(update={"name": "small", "weights_bytes": 16_000_000_000})
FABRICS = {site.name: fabric_of(site) for site in (H100, PCIE)}


def speed(ranks: int, *, kv_tokens: int | None = 200_000, **figures: float) -> Speed:
    """80 ms for 1000 tokens of prompt, 10 ms a decode step, both less with more ranks."""
    made = {
        "prefill_base_ms": 0.0,
        "prefill_ms_per_token": 0.08 / ranks**0.8,
        "prefill_ms_per_token2": 0.0,
        "decode_base_ms": 10.0 / ranks**0.5,
        "decode_ms_per_sequence": 0.05,
        "decode_ms_per_context_token": 1e-5,
    } | figures
    model = LinearLatency(**made, kv_tokens=kv_tokens, source=f"made, TP {ranks}", kind="predicted")
    return Speed(model=model, prefill_ranks=ranks, decode_ranks=ranks)


def asked(site: Site = H100, /, **changes: Any) -> Service:
    load = Workload(input_tokens=4000, output_tokens=100)
    plain = {"mode": Mode.AUTO, "pools": pools(1, 1, 1, 1), "workload": load, "slo": Slo(ttft_ms=2000.0, tpot_ms=30.0)}
    return service(site, **(plain | changes))


def weighed(site: Site = H100, /, *, ranks: Sequence[int] = (1, 2), **changes: Any) -> Weighed:
    more = {key: changes.pop(key) for key in ("gpus", "alternatives", "seed", "speeds") if key in changes}
    speeds = more.pop("speeds", [speed(one) for one in ranks])
    return weigh(
        fabric=FABRICS[site.name],
        site=site,
        shape=SMALL,
        service=asked(site, **changes),
        speeds=speeds,
        **more,
    )


def rows(found: Weighed) -> dict[str, Alternative]:
    return {one.name: one for one in found.comparison.alternatives}


def test_a_tight_tpot_separates_and_a_loose_one_does_not() -> None:
    tight = weighed(slo=Slo(ttft_ms=2000.0, tpot_ms=15.0)).comparison
    assert tight.plan.mode == "disaggregated"
    assert tight.plan.verdict.basis == "simulation"
    assert tight.plan.verdict.reasons[0].startswith("separate prefill and decode: ")
    assert "loose SLO" not in tight.plan.verdict.against
    loose = weighed(slo=Slo(ttft_ms=2000.0, tpot_ms=1000.0)).comparison
    assert loose.plan.mode == "aggregated"
    assert loose.plan.verdict.reasons[0].startswith("serve aggregated: ")
    assert "loose SLO" in loose.plan.verdict.against


@pytest.mark.parametrize("tpot_ms", [12.0, 20.0, 40.0, 400.0])
def test_the_sentence_has_the_goodputs_that_the_table_has(tpot_ms: float) -> None:
    found = weighed(slo=Slo(ttft_ms=2000.0, tpot_ms=tpot_ms)).comparison
    by_mode = {one.mode: one.goodput_per_gpu or 0.0 for one in found.alternatives}
    apart, together = by_mode["disaggregated"], by_mode["aggregated"]
    assert found.plan.verdict.disaggregate == (apart > 1.03 * together)
    taken, left = (apart, together) if found.plan.verdict.disaggregate else (together, apart)
    assert f"{taken:.3g} good requests/s per GPU against {left:.3g}" in found.plan.verdict.reasons[0]
    assert [one.chosen for one in found.alternatives] == [True, False]


def test_a_slow_link_is_told_and_loses() -> None:
    found = weighed(PCIE, slo=Slo(ttft_ms=600.0, tpot_ms=15.0)).comparison.plan
    assert found.mode == "aggregated"
    assert "slow link" in found.verdict.against
    assert found.verdict.transfer == "longer than the prefill"


def test_pulls_take_turns_where_the_services_router_lets_them() -> None:
    """On a slow link pulls that share it end together and late; one after another more of them are in time."""

    def rate(*, in_turn: bool) -> float:
        found = weighed(
            PCIE,
            ranks=(1,),
            pools=pools(3, 1, 1, 1),
            slo=Slo(ttft_ms=1500.0, tpot_ms=40.0),
            router=RouterSettings(pulls_in_turn=in_turn),
        )
        [apart] = [one.goodput for one in found.comparison.alternatives if one.mode == "disaggregated"]
        assert apart is not None
        return apart.request_rate or 0.0

    assert rate(in_turn=True) > 1.2 * rate(in_turn=False) > 0


def test_at_a_low_load_that_aggregated_serving_carries_nothing_is_gained() -> None:
    load = Workload(input_tokens=4000, output_tokens=100, requests_per_s=0.05)
    found = weighed(slo=Slo(ttft_ms=2000.0, tpot_ms=15.0), workload=load).comparison.plan
    assert found.mode == "aggregated"
    assert "low load" in found.verdict.against
    assert found.verdict.reasons[0].startswith("serve aggregated: at 0.05 requests/s it meets the SLO")


def test_at_a_load_that_only_separate_phases_carry_they_are_taken() -> None:
    slo = Slo(ttft_ms=2000.0, tpot_ms=15.0)
    free = {one.mode: one.goodput for one in weighed(slo=slo).comparison.alternatives}
    apart, together = (free[mode].request_rate or 0.0 for mode in ("disaggregated", "aggregated"))  # type: ignore[union-attr] # simulated
    load = Workload(input_tokens=4000, output_tokens=100, requests_per_s=(0.7 * apart + 0.3 * together))
    found = weighed(slo=slo, workload=load).comparison.plan
    assert found.mode == "disaggregated"
    assert "only that meets the SLO" in found.verdict.reasons[0]


@pytest.mark.parametrize("mode", [Mode.DISAGGREGATED, Mode.AGGREGATED])
def test_the_users_mode_is_obeyed_and_judged(mode: Mode) -> None:
    judged = {weighed(mode=one, slo=Slo(ttft_ms=2000.0, tpot_ms=15.0)).comparison.plan for one in (Mode.AUTO, mode)}
    assert {plan.mode for plan in judged} >= {mode.value}
    assert len({plan.verdict.disaggregate for plan in judged}) == 1
    assert {plan.asked_mode for plan in judged} == {Mode.AUTO, mode}


def test_so_many_gpus_are_given_the_best_shape_of_those_that_were_simulated() -> None:
    found = weighed(gpus=4, ranks=(2,), slo=Slo(ttft_ms=2000.0, tpot_ms=12.0))
    best, *others = found.comparison.alternatives
    assert best.chosen
    assert best.gpus <= 4
    assert all((one.goodput_per_gpu or 0.0) <= (best.goodput_per_gpu or 0.0) for one in others)
    assert found.service.pools == best.pools
    assert found.service.mode.value == best.mode == found.comparison.plan.mode
    assert sum(len(rank.gpus) for worker in found.comparison.plan.workers for rank in worker.ranks) == best.gpus


def test_every_figure_of_a_simulated_verdict_has_its_kind_and_source() -> None:
    """Of five GPUs in pairs one is idle, and counts."""
    found = weighed(gpus=5, ranks=(2,)).comparison.plan.verdict
    numbers = {one.what: one for one in found.evidence}
    assert (numbers["rate by formulas, separate"].kind, numbers["goodput, separate"].kind) == ("predicted", "simulated")
    each = numbers["goodput per GPU, separate"]
    assert each.value == pytest.approx(numbers["goodput, separate"].value / 5)
    assert each.source == "goodput / 5 GPUs"
    sentence, moved, computed, compared, *_ = found.reasons
    rate = numbers["rate prefill-0 to decode-0, the slowest path"]
    assert "simulated under" in sentence
    assert "ms (predicted) from prefill-0 to decode-0" in moved
    assert moved.endswith(f"{rate.value:.4g} GB/s: {rate.source})")
    assert "ms (predicted: made, TP 2)" in computed
    assert "(simulated, 90th percentiles)" in compared
    assert compared.endswith("on 5 GPUs against 5")


def test_on_one_gpu_the_rule_of_one_gpu_is_named() -> None:
    found = weighed(gpus=1, ranks=(1,)).comparison.plan
    assert (found.mode, found.verdict.against) == ("aggregated", ("one GPU",))
    assert "of 1 GPUs no prefill and decode workers can be made" in found.verdict.reasons[0]
    with pytest.raises(PlacementError, match="of 1 GPUs no prefill and decode workers can be made"):
        weighed(gpus=1, ranks=(1,), mode=Mode.DISAGGREGATED)


def test_where_only_separate_workers_have_times_the_verdict_says_so_and_is_simulated() -> None:
    """One file with the times of a prefill worker of one GPU and a decode worker of two."""
    apart = [Speed(model=speed(1).model, prefill_ranks=1, decode_ranks=2)]
    found = weighed(gpus=3, speeds=apart).comparison.plan
    assert (found.mode, found.verdict.disaggregate, found.verdict.basis) == ("disaggregated", True, "simulation")
    assert "no aggregated workers can be made whose times a latency model tells" in found.verdict.reasons[0]
    assert "good requests/s, simulated under" in found.verdict.reasons[0]
    assert not [line for line in found.verdict.reasons if "serve aggregated" in line or "--latency" in line]
    with pytest.raises(PlacementError, match="no aggregated workers can be made"):
        weighed(gpus=3, speeds=apart, mode=Mode.AGGREGATED)


def test_a_verdict_says_what_its_simulation_did_not_know() -> None:
    found = weigh(
        fabric=FABRICS[PCIE.name],
        site=PCIE,
        shape=SMALL.model_copy(update={"weights_bytes": None}),
        service=asked(PCIE),
        speeds=[speed(1, kv_tokens=None)],
    )
    reasons = found.comparison.plan.verdict.reasons
    assert reasons.count("KV capacity is not known and was taken to be without limit") == 1
    assert not [line for line in weighed(PCIE).comparison.plan.verdict.reasons if line.startswith("KV capacity")]


def test_gpus_that_are_too_small_to_be_used_say_nothing_of_the_room_for_kv() -> None:
    """16 GB of weights do not fit the 10 GiB of the nodes that are listed first."""

    def goodputs(site: Site) -> list[float | None]:
        found = weigh(
            fabric=fabric_of(site), site=site, shape=SMALL, service=asked(site), speeds=[speed(1, kv_tokens=None)]
        )
        return [one.goodput_per_gpu for one in found.comparison.alternatives]

    rest = H100.partitions["gpu"].model_copy(update={"hosts": "h[09-16]"})
    assert goodputs(small_first(10.0)) == goodputs(H100.model_copy(update={"partitions": {"gpu": rest}}))


def test_own_pools_are_kept_whatever_else_is_shown() -> None:
    found = weighed(alternatives=True, ranks=(1,), pools=pools(1, 1, 2, 1), slo=Slo(ttft_ms=2000.0, tpot_ms=15.0))
    assert found.service.pools == pools(1, 1, 2, 1)
    chosen = [one for one in found.comparison.alternatives if one.chosen]
    assert [one.as_written for one in chosen] == [True]
    assert len(found.comparison.alternatives) > 2
    best = found.comparison.alternatives[0]
    assert not best.chosen
    assert any(f"another shape gives more: {best.name}" in one for one in found.comparison.plan.verdict.reasons)


def test_the_same_seed_gives_the_same_comparison() -> None:
    assert weighed(ranks=(1,)).comparison == weighed(ranks=(1,)).comparison


def test_parallelism_without_a_latency_model_is_named_and_never_guessed() -> None:
    with pytest.raises(NotFoundError, match="no latency model of a prefill worker with tensor_parallel 4"):
        weighed(pools=pools(1, 4, 1, 4))
    found = weighed(gpus=4, ranks=(2,))
    assert {pool.tensor_parallel for one in found.comparison.alternatives for pool in one.pools} == {2}
    assert "TP 1 of prefill, decode, aggregated workers: no latency model was given" in found.comparison.left_out
    with pytest.raises(PlacementError, match="no shape of 1 GPUs can be judged"):
        weighed(gpus=1, ranks=(2,))


def test_a_slo_that_nobody_meets_is_said() -> None:
    found = weighed(slo=Slo(ttft_ms=100.0, tpot_ms=30.0)).comparison
    assert found.plan.verdict.reasons[0].startswith("serve aggregated: neither way meets the SLO")
    assert {one.goodput_per_gpu for one in found.alternatives} == {0.0}


def test_the_job_keeps_the_simulated_verdict_on_the_nodes_that_were_promised() -> None:
    found = weighed(slo=Slo(ttft_ms=2000.0, tpot_ms=15.0))
    plan = found.comparison.plan
    granted = place(
        fabric=FABRICS[H100.name],
        site=H100,
        shape=SMALL,
        service=found.service,
        allocation=allocation_of(H100, plan),
        asked=plan,
    )
    assert granted.verdict == plan.verdict


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 16), st.sets(st.sampled_from([1, 2, 4, 8]), min_size=1))
def test_every_shape_is_legal_and_fills_what_it_can(gpus: int, ranks: set[int]) -> None:
    speeds = Speeds(speeds=tuple(speed(one) for one in sorted(ranks)), shape=SMALL, gpu_memory_gib=80.0)
    found, _ = shapes_for(gpus, service=asked(), model=SMALL, kind=NODE, speeds=speeds)
    assert len({shape.key for shape in found}) == len(found)
    cut = cut_of(SMALL)
    for shape in found:
        sizes = {pool.role: pool.tensor_parallel for pool in shape.pools}
        assert set(sizes.values()) <= ranks
        assert shape.gpus <= gpus
        assert gpus - shape.gpus < max(sizes.values())
        if shape.mode == "disaggregated":
            assert cut.pair_obstacle(sizes[Role.PREFILL], sizes[Role.DECODE]) is None
    assert bool(found) == any(one <= gpus for one in ranks)


def test_ranks_stay_in_an_island_and_in_memory() -> None:
    assert legal_ranks(LLAMA_70B, asked(), NODE) == (2, 4, 8)
    assert legal_ranks(SMALL, asked(), PCIE.node_types["l40s"]) == (1, 2, 4)


@settings(max_examples=25, deadline=None)
@given(st.floats(11.0, 60.0), st.sampled_from(Role))
def test_formulas_never_carry_less_under_a_looser_limit(tpot_ms: float, role: Role) -> None:
    speeds = Speeds(speeds=(speed(1),), shape=SMALL, gpu_memory_gib=80.0)

    def rate(limit_ms: float) -> float:
        of = asked(slo=Slo(ttft_ms=2000.0, tpot_ms=limit_ms))
        return quick_rate(Pool(role=role, workers=1), service=of, kind=NODE, speeds=speeds)

    assert rate(tpot_ms) <= rate(tpot_ms * 1.2) * (1 + 1e-5)


@given(st.floats(9.0, 40.0), st.integers(1, 300))
def test_the_largest_batch_is_within_the_limit_and_one_more_is_not(limit_ms: float, most: int) -> None:
    model, load = speed(1).model, asked().workload
    scheduling = Scheduling(max_sequences=most)
    batch = largest_batch(model, workload=load, limit_ms=limit_ms, scheduling=scheduling)
    context = load.input_tokens + load.output_tokens // 2
    room = min(most, 200_000 // (load.input_tokens + load.output_tokens))
    assert 0 <= batch <= room
    assert batch == 0 or model.decode_ms(batch, batch * context) <= limit_ms
    assert batch == room or model.decode_ms(batch + 1, (batch + 1) * context) > limit_ms


def test_steps_are_filled_as_the_arguments_say_else_as_vllm_does_on_such_gpus() -> None:
    pool = pools(1, 1, 1, 1)[0]
    assert scheduling_of(asked(), pool, NODE) == Scheduling(token_budget=8192, max_sequences=1024)
    assert scheduling_of(asked(PCIE), pool, PCIE.node_types["l40s"]) == Scheduling()
    own = pool.model_copy(update={"args": ("--max-num-seqs", "64", "--max_num_batched_tokens=512")})
    assert scheduling_of(asked(), own, NODE) == Scheduling(token_budget=512, max_sequences=64)


def test_room_for_kv_is_what_the_weights_leave() -> None:
    """0.92 of 80 GiB less 16 GB, at 327,680 bytes a token: 192,344 tokens; half of both on two ranks: 433,516.

    Of half of a node's 79.6 GiB, as a service may ask, 81,588 tokens.
    """
    unknown = LinearLatency(
        prefill_base_ms=1.0, prefill_ms_per_token=1.0, prefill_ms_per_token2=0.0,
        decode_base_ms=1.0, decode_ms_per_sequence=0.0, decode_ms_per_context_token=0.0,
        kv_tokens=None, source="made", kind="predicted",
    )  # fmt: skip
    given = tuple(Speed(model=unknown, prefill_ranks=ranks, decode_ranks=ranks) for ranks in (1, 2))
    known = Speeds(speeds=given, shape=SMALL, gpu_memory_gib=80.0)
    decode = [Pool(role=Role.DECODE, workers=1, tensor_parallel=ranks) for ranks in (1, 2)]
    assert [known.need(pool).kv_tokens for pool in decode] == [192_344, 433_516]
    half = asked(args=("--gpu-memory-utilization", "0.5"))
    assert speeds_for(given, shape=SMALL, service=half, kind=NODE).need(decode[0]).kv_tokens == 81_588
    slots = Speeds(speeds=given, shape=SMALL, gpu_memory_gib=None)
    assert slots.need(decode[0]).kv_tokens is None


def test_a_stage_has_the_room_that_its_own_layers_leave() -> None:
    """Two stages of 40 layers have what two ranks have; three, of 27, 27 and 26, a little less than three."""
    unknown = LinearLatency(
        prefill_base_ms=1.0, prefill_ms_per_token=1.0, prefill_ms_per_token2=0.0,
        decode_base_ms=1.0, decode_ms_per_sequence=0.0, decode_ms_per_context_token=0.0,
        kv_tokens=None, source="made", kind="predicted",
    )  # fmt: skip
    given = tuple(
        Speed(model=unknown, prefill_ranks=1, decode_ranks=1, prefill_stages=stages, decode_stages=stages)
        for stages in (2, 3)
    )
    known = Speeds(speeds=given, shape=SMALL, gpu_memory_gib=80.0)
    rooms = [known.of(Role.DECODE, 1, stages) for stages in (2, 3)]
    assert rooms[0] is not None
    assert rooms[0].kv_tokens == 433_516
    assert rooms[1] is not None
    assert rooms[1].kv_tokens == int((80 * 2**30 * 0.92 - 16e9 * 27 / 80) / (327_680 * 27 / 80))


def staged(ranks: int, stages: int) -> Speed:
    """Stages of a worker that computes as `speed` does without them."""
    model = PipelinedLatency(_part(ranks, stages), stages)
    return Speed(model=model, prefill_ranks=ranks, decode_ranks=ranks, prefill_stages=stages, decode_stages=stages)


def _part(ranks: int, stages: int) -> LinearLatency:
    whole = speed(ranks).model
    assert isinstance(whole, LinearLatency)
    figures = (
        "prefill_base_ms",
        "prefill_ms_per_token",
        "decode_base_ms",
        "decode_ms_per_sequence",
        "decode_ms_per_context_token",
    )
    return replace(
        whole, source=f"made, TP {ranks} PP {stages}", **{name: getattr(whole, name) / stages for name in figures}
    )


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 24), st.sets(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 3])), min_size=1))
def test_every_shape_of_stages_has_its_latency_model_and_fills_what_it_can(
    gpus: int, given_for: set[tuple[int, int]]
) -> None:
    speeds = Speeds(speeds=tuple(staged(*one) for one in sorted(given_for)), shape=SMALL, gpu_memory_gib=80.0)
    found, left_out = shapes_for(gpus, service=asked(), model=SMALL, kind=NODE, speeds=speeds)
    assert len({shape.key for shape in found}) == len(found)
    for shape in found:
        sizes = {(pool.tensor_parallel, pool.pipeline_parallel) for pool in shape.pools}
        assert sizes <= given_for
        assert len({stages for _, stages in sizes}) == 1
        assert shape.mode == "disaggregated" or sizes == {(shape.pools[0].tensor_parallel, 1)}
        assert gpus - max(ranks * stages for ranks, stages in sizes) < shape.gpus <= gpus
    staged_pairs = [ranks * stages for ranks, stages in given_for if stages > 1 and 2 * ranks * stages <= gpus]
    assert bool(staged_pairs) == any(pool.pipeline_parallel > 1 for shape in found for pool in shape.pools)
    assert (UNSIMULATED in left_out) == any(stages > 1 for _, stages in given_for)


def test_pools_of_stages_are_judged_and_what_cannot_be_simulated_says_so() -> None:
    """On nodes whose host path is slower than their NIC: each stage gets the NICs of two nodes for its own KV."""
    own = tuple(pool.model_copy(update={"pipeline_parallel": 2}) for pool in pools(1, 2, 1, 2))
    found = weighed(PCIE, speeds=[staged(2, 2)], pools=own, slo=Slo(ttft_ms=2000.0, tpot_ms=30.0)).comparison
    [separate, whole] = found.alternatives
    assert separate.name == "1 prefill TP 2 PP 2 + 1 decode TP 2 PP 2"
    assert separate.gpus == 8
    assert separate.goodput_per_gpu
    assert separate.links[0] == "same-leaf"
    assert len({rank.node for worker in found.plan.workers for rank in worker.ranks}) == 4
    assert (
        "what pipeline stages send to one another is only in the latency model, wherever they are" in separate.remarks
    )
    assert whole.remarks == (UNSIMULATED,)
    assert whole.goodput is None
    assert found.plan.verdict.reasons[0].startswith(
        f"separate prefill and decode: aggregated serving could not be compared ({UNSIMULATED})"
    )
    assert "it cannot be started: prefill-0 has 2 pipeline stages" in found.plan.verdict.reasons[-1]
    with pytest.raises(PlacementError, match="leave --latency out"):
        weighed(PCIE, speeds=[staged(2, 2)], pools=own, mode=Mode.AGGREGATED)


def test_two_stages_take_in_nearly_twice_the_prompts() -> None:
    """The next prompt begins when the first stage is free; DistServe, section 3.1."""
    slo, load = Slo(ttft_ms=2000.0, tpot_ms=30.0), asked().workload
    one = prefill_rate(speed(1).model, workload=load, slo=slo)
    two = prefill_rate(staged(1, 2).model, workload=load, slo=slo, stages=2)
    assert 1.5 * one < two < 2.5 * one


def test_times_of_other_stages_are_not_taken() -> None:
    own = tuple(pool.model_copy(update={"pipeline_parallel": 2}) for pool in pools(1, 1, 1, 1))
    with pytest.raises(NotFoundError, match="with tensor_parallel 1 and pipeline_parallel 2; those that were given"):
        weighed(pools=own)
