import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.nouns import Role
from hpcserve.simulate import Deployment, Failure, Lengths, Offered, Overlap, simulate
from hpcserve.simulate import engine as engine_module
from hpcserve.simulate.simulation import Simulation
from hpcserve.simulate.stretch import stretch_of
from tests.simulate import made

LENGTHS = st.builds(
    lambda tokens, out, cached: Lengths(tokens, out, min(cached, tokens - 1)),
    st.integers(1, 300),
    st.integers(1, 40),
    st.integers(0, 200),
)
SCHEDULING = st.fixed_dictionaries(
    {
        "token_budget": st.sampled_from([7, 64, 1000]),
        "max_sequences": st.sampled_from([1, 3, 100]),
        "chunked": st.booleans(),
        "mixed": st.booleans(),
        "kv_policy": st.sampled_from(["preempt", "reserve"]),
    }
)
WORKER = st.fixed_dictionaries(
    {
        "kv_tokens": st.sampled_from([None, 340, 500, 1500]),
        "scheduling": SCHEDULING,
        "figures": st.fixed_dictionaries(
            {
                "decode_ms_per_sequence": st.sampled_from([0.0, 0.5]),
                "decode_ms_per_context_token": st.sampled_from([0.0, 0.01]),
            }
        ),
    }
)


@st.composite
def deployments(draw: st.DrawFn) -> Deployment:
    if draw(st.booleans()):
        made_up = made.aggregated(draw(st.integers(1, 3)), **draw(WORKER))
    else:
        made_up = made.pairs(
            draw(st.integers(1, 3)),
            draw(st.integers(1, 3)),
            gb_per_s=draw(st.sampled_from([0.1, 1.0, 100.0])),
            uplink_gb_per_s=draw(st.sampled_from([0.3, 1e6])),
            prefill=draw(WORKER),
            decode=draw(WORKER),
            first_token_by=draw(st.sampled_from([Role.PREFILL, Role.DECODE])),
            leg_ms=draw(st.sampled_from([0.0, 3.0])),
            transfer_base_ms=draw(st.sampled_from([0.0, 2.0])),
            pulls_in_turn=draw(st.booleans()),
            overlap=draw(st.sampled_from([None, Overlap(layers=4), Overlap(layers=4, least_tokens=100)])),
        )
    names = [worker.id for worker in made_up.workers]
    failures = draw(
        st.lists(
            st.builds(
                Failure,
                worker=st.sampled_from(names),
                at_ms=st.floats(0, 5000),
                down_ms=st.one_of(st.none(), st.floats(0, 3000)),
            ),
            max_size=2,
            unique_by=lambda failure: failure.worker,
        )
    )
    return replace(made_up, failures=tuple(failures))


def run_watched(deployment: Deployment, traffic: Offered, *, seed: int) -> Simulation:
    simulation = Simulation(deployment, traffic, slo=made.EASY, seed=seed, warm_up=0, keep_records=True)
    while simulation.step():
        for engine in simulation.engines.values():
            assert engine.seats.room.tokens >= 0
            assert engine.seats.room.limit_tokens is None or engine.seats.room.tokens <= engine.seats.room.limit_tokens
            assert 0 <= engine.seats.running <= engine.spec.scheduling.max_sequences
        limits = simulation.transfers.network.limits_gb_per_s()
        for link, gb_per_s in simulation.transfers.network.gb_per_s().items():
            assert gb_per_s <= limits[link] * (1 + 1e-9)
    return simulation


@settings(max_examples=120, deadline=None)
@given(
    deployment=deployments(),
    lengths=st.lists(LENGTHS, min_size=1, max_size=5),
    rate=st.sampled_from([1.0, 20.0, 1000.0]),
    seed=st.integers(0, 100),
)
def test_every_request_ends_once_and_no_limit_is_passed(
    deployment: Deployment, lengths: list[Lengths], rate: float, seed: int
) -> None:
    traffic = Offered(rate=rate, requests=25, lengths=lengths)
    simulation = run_watched(deployment, traffic, seed=seed)
    outcome = simulation.outcome()
    assert [record.number for record in outcome.records] == list(range(25))
    assert outcome.ok + outcome.refused + outcome.failed == outcome.requests == 25
    if not deployment.failures:
        assert outcome.failed == 0
    for engine in simulation.engines.values():
        assert engine.seats.room.tokens == 0
        assert (engine.seats.decoding.sequences, engine.seats.decoding.context_tokens) == (0, 0)
        assert engine.seats.running == 0
    assert not simulation.transfers.network.gb_per_s()
    for load in simulation.router.loads.values():
        assert (load.in_flight, load.transfers, load.coming) == (0, 0, 0)
        assert load.prefill_tokens == pytest.approx(0.0, abs=1e-6)
        assert load.kv_tokens == pytest.approx(0.0, abs=1e-6)
    for record in outcome.records:
        if record.ending == "ok":
            assert record.ttft_ms is not None
            assert record.ttft_ms > 0
            assert record.finished_at_ms is not None
            assert record.finished_at_ms >= record.arrived_at_ms + record.ttft_ms - 1e-6
            assert (record.tpot_ms is not None) == (record.output_tokens > 1)
    for link in outcome.links:
        assert 0.0 <= link.utilisation <= 1 + 1e-9
    for worker in outcome.workers:
        assert 0.0 <= worker.busy <= 1 + 1e-9


@settings(max_examples=20, deadline=None)
@given(deployment=deployments(), lengths=st.lists(LENGTHS, min_size=1, max_size=3), seed=st.integers(0, 9))
def test_the_same_seed_gives_the_same_outcome(deployment: Deployment, lengths: list[Lengths], seed: int) -> None:
    traffic = Offered(rate=20.0, requests=15, lengths=lengths, process="gamma", variation=3.0)
    first = simulate(deployment, traffic, slo=made.EASY, seed=seed, keep_records=True)
    assert first == simulate(deployment, traffic, slo=made.EASY, seed=seed, keep_records=True)


def test_another_seed_gives_another_outcome() -> None:
    traffic = Offered(rate=2.0, requests=30, lengths=[Lengths(100, 5)])
    first, second = (simulate(made.pairs(), traffic, slo=made.EASY, seed=seed) for seed in (1, 2))
    assert first.mean_ttft_ms != second.mean_ttft_ms


def renamed(deployment: Deployment, names: dict[str, str], order: Any) -> Deployment:
    workers = [replace(worker, id=names[worker.id]) for worker in deployment.workers]
    flows = {(names[here], names[there]): flows for (here, there), flows in deployment.flows.items()}
    return replace(deployment, workers=tuple(order(workers)), flows=flows)


@pytest.mark.parametrize("order", [list, reversed])
def test_names_and_order_of_like_workers_change_nothing(order: Any) -> None:
    deployment = made.pairs(3, 2, gb_per_s=0.5, uplink_gb_per_s=0.8, decode={"kv_tokens": 2000})
    names = {worker.id: f"z{9 - number}" for number, worker in enumerate(deployment.workers)}
    traffic = Offered(rate=12.0, requests=400, lengths=[Lengths(100, 20), Lengths(300, 5)])
    plain, other = (simulate(one, traffic, slo=made.EASY) for one in (deployment, renamed(deployment, names, order)))
    assert plain.mean_ttft_ms == pytest.approx(other.mean_ttft_ms, rel=1e-9)
    assert plain.mean_tpot_ms == pytest.approx(other.mean_tpot_ms, rel=1e-9)
    assert plain.ttft_ms == other.ttft_ms
    assert plain.duration_ms == pytest.approx(other.duration_ms, rel=1e-9)


def test_memory_does_not_grow_with_requests_that_are_over() -> None:
    traffic = Offered(rate=2.0, requests=2000, lengths=[Lengths(100, 5)])
    simulation = Simulation(made.pairs(), traffic, slo=made.EASY, seed=0, warm_up=0, keep_records=False)
    most = 0
    while simulation.step():
        held = len(simulation.agenda._heap) + sum(engine.seats.remembered for engine in simulation.engines.values())
        most = max(most, held)
    assert most < 100
    assert not simulation.outcome().records


def uneven(deployment: Deployment) -> Deployment:
    """Without failures, and with times that never meet: what comes at one moment may differ by rounding alone."""
    workers = [
        replace(
            worker,
            latency=made.latency(
                kv_tokens=worker.latency.kv_tokens,
                prefill_ms_per_token=math.pi / (3 + number / 7),
                decode_base_ms=math.e * (3 + number / 11),
                decode_ms_per_context_token=math.sqrt(2) / 200,
            ),
        )
        for number, worker in enumerate(deployment.workers)
    ]
    return replace(deployment, workers=tuple(workers), failures=())


@settings(max_examples=100, deadline=None, derandomize=True)  # 1 of 1,600 drawn cases parts equals by rounding
@given(deployment=deployments(), lengths=st.lists(LENGTHS, min_size=1, max_size=5), seed=st.integers(0, 100))
def test_steps_in_bulk_are_steps_one_by_one(deployment: Deployment, lengths: list[Lengths], seed: int) -> None:
    deployment = uneven(deployment)
    traffic = Offered(rate=20.0, requests=25, lengths=lengths)
    bulk = simulate(deployment, traffic, slo=made.EASY, seed=seed, keep_records=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "stretch_of", lambda *args, **facts: stretch_of(*args, **{**facts, "steps": 1}))
        single = simulate(deployment, traffic, slo=made.EASY, seed=seed, keep_records=True)
    assert [record.ending for record in bulk.records] == [record.ending for record in single.records]
    # Sorted: of two that become ready at one moment, rounding may let the one or the other go first.
    ends = [sorted(record.finished_at_ms or 0.0 for record in one.records) for one in (bulk, single)]
    ttfts = [sorted(record.ttft_ms or 0.0 for record in one.records) for one in (bulk, single)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)
    assert sum(ttfts[0]) == pytest.approx(sum(ttfts[1]), rel=1e-6)
