"""Whole services whose every time can be worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from hpcserve.fabric import Link
from hpcserve.nouns import Role, Slo
from hpcserve.simulate import (
    Arrival,
    Deployment,
    Failure,
    Flow,
    Lengths,
    Outcome,
    Overlap,
    Record,
    Trace,
    simulate,
)
from hpcserve.simulate.simulation import Simulation
from tests.simulate import made


def at(*when: float, lengths: Lengths | None = None, each: tuple[Lengths, ...] = ()) -> Trace:
    tokens = each or (lengths or Lengths(100, 3),) * len(when)
    return Trace(seen=tuple(Arrival(ms, one) for ms, one in zip(when, tokens, strict=True)))


def served(deployment: Deployment, traffic: Trace, **more: Any) -> tuple[Outcome, tuple[Record, ...]]:
    outcome = simulate(deployment, traffic, slo=more.pop("slo", made.EASY), keep_records=True, **more)
    return outcome, outcome.records


def test_one_request_alone() -> None:
    """Prefill 100 ms, 100 MB at 1 GB/s 100 ms, then three decode steps of 10 ms."""
    outcome, (record,) = served(made.pairs(), at(0.0))
    assert record.prefilled_at_ms == pytest.approx(100.0)
    assert record.transferred_at_ms == pytest.approx(200.0)
    assert record.ttft_ms == pytest.approx(210.0)
    assert record.tpot_ms == pytest.approx(10.0)
    assert record.finished_at_ms == pytest.approx(230.0)
    assert (record.prefill, record.decode, record.ending) == ("prefill-0", "decode-0", "ok")
    assert outcome.pool(Role.PREFILL).busy == pytest.approx(100 / 230)
    assert outcome.pool(Role.DECODE).busy == pytest.approx(30 / 230)
    assert {link.name: link.utilisation for link in outcome.links}["0 out"] == pytest.approx(100 / 230)
    assert outcome.transfer_ms.p50 == pytest.approx(100.0, rel=2e-3)
    assert outcome.events == 5


def test_kv_is_asked_for_at_the_end_of_a_step() -> None:
    """The second prompt is ready after 205 ms, in the middle of a decode step of the first one's."""
    _, (first, second) = served(made.pairs(), at(0.0, 1.0, each=(Lengths(100, 3), Lengths(105, 3))))
    assert first.pulled_at_ms == pytest.approx(100.0)
    assert second.prefilled_at_ms == pytest.approx(205.0)
    assert second.pulled_at_ms == pytest.approx(210.0)
    assert second.transferred_at_ms == pytest.approx(315.0)


def test_the_first_token_may_be_prefills() -> None:
    """It is there after 100 ms; the next two follow 110 and 120 ms later: the transfer is in the second token."""
    _, (record,) = served(made.pairs(first_token_by=Role.PREFILL), at(0.0))
    assert record.ttft_ms == pytest.approx(100.0)
    assert record.finished_at_ms == pytest.approx(220.0)
    assert record.tpot_ms == pytest.approx(60.0)


def test_what_legs_and_transfers_cost_beside_their_work() -> None:
    """5 ms before each leg, 7 ms before the bytes."""
    _, (record,) = served(made.pairs(leg_ms=5.0, transfer_base_ms=7.0), at(0.0))
    assert record.ttft_ms == pytest.approx(210.0 + 2 * 5.0 + 7.0)


def test_what_is_cached_is_not_asked_for() -> None:
    """Whether to borrow is weighed by the tokens that come to be computed, where they are computed."""
    for caches, asked in ((True, 20.0), (False, 100.0)):
        traffic = at(0.0, 300.0, lengths=Lengths(100, 3, cached_tokens=80))
        deployment = made.pairs(prefill={"prefix_cache": caches})
        simulation = Simulation(deployment, traffic, slo=made.EASY, seed=0, warm_up=0, keep_records=False)
        while simulation.step():
            pass
        typical = simulation.router.typical
        assert (typical.asked_tokens, typical.gap_ms) == (asked, 300.0)


def test_two_transfers_share_an_uplink() -> None:
    """Both prefills end at 100 ms; each gets half of 1 GB/s, so that 100 MB take 200 ms."""
    _, records = served(made.pairs(2, 2, gb_per_s=10.0, uplink_gb_per_s=1.0), at(0.0, 0.0))
    assert [record.transferred_at_ms for record in records] == pytest.approx([300.0, 300.0])
    assert {record.prefill for record in records} == {"prefill-0", "prefill-1"}


def test_pulls_may_go_in_turn() -> None:
    """Two prefills end at 100 ms; into one port of 1 GB/s both would take 200 ms, in turn 100 ms each."""
    for in_turn, ends in ((False, [300.0, 300.0]), (True, [200.0, 300.0])):
        _, records = served(made.pairs(2, 1, pulls_in_turn=in_turn), at(0.0, 0.0))
        assert [record.transferred_at_ms for record in records] == pytest.approx(ends)


def test_between_two_workers_kv_moves_in_order() -> None:
    """Prefills end at 100 and 200 ms; 100 MB at 0.5 GB/s: the second waits for the first, and then takes 200 ms."""
    _, records = served(made.pairs(1, 1, gb_per_s=0.5), at(0.0, 1.0))
    assert [record.transferred_at_ms for record in records] == pytest.approx([300.0, 500.0])


def test_one_that_comes_later_takes_half_and_gives_it_back() -> None:
    """The first has 50 ms alone (50 MB), then half: its other 50 MB take 100 ms; the second then has 50 MB left."""
    deployment = made.pairs(2, 2, gb_per_s=10.0, uplink_gb_per_s=1.0)
    _, records = served(deployment, at(0.0, 50.0))
    assert [record.transferred_at_ms for record in records] == pytest.approx([250.0, 300.0])


def test_kv_may_be_sent_layer_by_layer() -> None:
    """Of four layers three are sent while prefill goes on, where the link is quick; the last takes 25 of 100 ms."""
    deployment = made.pairs(overlap=Overlap(layers=4))
    _, (record,) = served(deployment, at(0.0))
    assert record.transferred_at_ms == pytest.approx(125.0)
    assert record.ttft_ms == pytest.approx(135.0)


def test_a_slow_link_is_the_limit_all_along() -> None:
    """100 MB at 0.5 GB/s take 200 ms; they start with prefill and never wait for a layer."""
    _, (record,) = served(made.pairs(gb_per_s=0.5, overlap=Overlap(layers=4)), at(0.0))
    assert record.transferred_at_ms == pytest.approx(200.0)


def test_short_inputs_are_sent_after_prefill() -> None:
    _, (record,) = served(made.pairs(overlap=Overlap(layers=4, least_tokens=101)), at(0.0))
    assert record.transferred_at_ms == pytest.approx(200.0)


def test_a_prompt_holds_up_those_who_decode_beside_it() -> None:
    """One worker. A decodes 10 tokens from 100 ms on, a token every 10 ms; B's prompt of 200 tokens comes at 125 ms.

    A's steps end at 110, 120, 130; then one mixed step of 200 + 10 ms (bases are 0 and 10), and 6 more after 340 ms,
    beside B: A has 1 + 3 + 1 + 5 = 10 tokens at 390 ms. B's first token is there at 340 ms.
    """
    deployment = made.aggregated()
    _, (first, second) = served(deployment, at(0.0, 125.0, each=(Lengths(100, 10), Lengths(200, 2))))
    assert first.ttft_ms == pytest.approx(100.0)
    assert first.tpot_ms == pytest.approx((390.0 - 100.0) / 9)
    assert second.ttft_ms == pytest.approx(340.0 - 125.0)
    _, (alone,) = served(deployment, at(0.0, lengths=Lengths(100, 10)))
    assert alone.tpot_ms == pytest.approx(10.0)


def test_chunks_spread_the_same_work_over_more_steps() -> None:
    """As above with 51 tokens a step: A's token takes one, so B's prompt goes 50 at a time, four steps of 60 ms."""
    deployment = made.aggregated(scheduling={"token_budget": 51})
    _, (first, second) = served(deployment, at(0.0, 125.0, each=(Lengths(51, 10), Lengths(200, 2))))
    # A's tokens come at 51, 61, ..., 131: nine, when B's prompt begins; its tenth and last in a step with 50 of B's
    assert first.ttft_ms == pytest.approx(51.0)
    assert first.finished_at_ms == pytest.approx(131.0 + 60.0)
    # alone from then on: B's other 151 tokens, 51 at a time, one step of 10 + 50 done beside A
    assert second.ttft_ms == pytest.approx(191.0 + 150.0 - 125.0)


def test_prompts_may_go_first_while_those_who_decode_stand_still() -> None:
    """As in the first case, but B's 200 tokens have the step from 130 ms for themselves: its token comes at 330 ms.

    A has 4 tokens by 130 ms and its other 6 from 340 to 390 ms.
    """
    deployment = made.aggregated(scheduling={"mixed": False})
    _, (first, second) = served(deployment, at(0.0, 125.0, each=(Lengths(100, 10), Lengths(200, 2))))
    assert second.ttft_ms == pytest.approx(330.0 - 125.0)
    assert first.finished_at_ms == pytest.approx(390.0)


def test_disaggregation_takes_that_interference_away() -> None:
    """The same two requests on a pair: A's tokens come every 10 ms, whatever B does."""
    deployment = made.pairs(gb_per_s=1000.0)
    _, (first, _) = served(deployment, at(0.0, 125.0, each=(Lengths(100, 10), Lengths(200, 2))))
    assert first.tpot_ms == pytest.approx(10.0)


def test_cached_tokens_are_not_computed_but_move() -> None:
    _, (record,) = served(made.pairs(), at(0.0, lengths=Lengths(100, 3, cached_tokens=80)))
    assert record.prefilled_at_ms == pytest.approx(20.0)
    assert record.transferred_at_ms == pytest.approx(120.0)


def test_a_full_decode_worker_makes_others_wait() -> None:
    """Room for one request of 100 + 3 tokens: the second one's KV comes when the first has ended, at 230 ms."""
    deployment = made.pairs(2, 1, decode={"kv_tokens": 110})
    outcome, records = served(deployment, at(0.0, 0.0))
    assert [record.transferred_at_ms for record in records] == pytest.approx([200.0, 330.0])
    assert max(worker.most_kv_tokens for worker in outcome.workers if worker.role == Role.DECODE) == 103


@pytest.mark.parametrize(
    ("policy", "preemptions", "ends"), [("preempt", 1, [100.0, 144.0]), ("reserve", 0, [80.0, 160.0])]
)
def test_when_kv_runs_out(policy: str, preemptions: int, ends: list[float]) -> None:
    """Two requests of 20 + 7 tokens, room for 48.

    `preempt`: one step computes both prompts, 40 ms and 42 tokens; three steps later there are 48, at 70 ms. The second
    gives up its 24; the first goes on and ends at 100 ms; then 24 tokens are computed again, which makes the fifth, and
    two steps follow. `reserve`: 27 + 27 is too much, so one comes after the other.
    """
    deployment = made.aggregated(kv_tokens=48, scheduling={"kv_policy": policy})
    outcome, records = served(deployment, at(0.0, 0.0, lengths=Lengths(20, 7)))
    assert sum(worker.preemptions for worker in outcome.workers) == preemptions
    assert all(record.ending == "ok" for record in records)
    assert [record.finished_at_ms for record in records] == pytest.approx(ends)


def test_what_no_worker_can_hold_is_refused() -> None:
    outcome, records = served(
        made.pairs(decode={"kv_tokens": 102}), at(0.0, 0.0, each=(Lengths(100, 3), Lengths(99, 3)))
    )
    assert [record.ending for record in records] == ["refused", "ok"]
    assert (outcome.refused, outcome.ok, outcome.attainment) == (1, 1, 0.5)


def test_good_requests_meet_both_limits() -> None:
    """TTFT 210 ms and TPOT 10 ms alone; the second waits for the first one's prefill, 100 ms."""
    deployment = made.pairs(prefill={"scheduling": {"token_budget": 100}})
    for slo, good in (
        (Slo(ttft_ms=211, tpot_ms=11), 1),
        (Slo(ttft_ms=311, tpot_ms=11), 2),
        (Slo(ttft_ms=311, tpot_ms=9), 0),
    ):
        outcome, _ = served(deployment, at(0.0, 0.0), slo=slo)
        assert outcome.good == good
        assert outcome.attainment == good / 2
        assert outcome.good_per_s == pytest.approx(good / 0.33)


def test_warm_up_counts_nowhere() -> None:
    outcome, records = served(made.pairs(prefill={"scheduling": {"token_budget": 100}}), at(0.0, 0.0), warm_up=1)
    assert (outcome.requests, len(records)) == (1, 2)
    assert outcome.mean_ttft_ms == pytest.approx(310.0)


def test_a_dead_prefill_workers_requests_go_to_the_other() -> None:
    """One of the two prefills is half done at 50 ms; it begins anew behind the other one, and is there at 200 ms."""
    deployment = made.pairs(2, 1, failures=(Failure(worker="prefill-0", at_ms=50.0),))
    outcome, records = served(deployment, at(0.0, 0.0))
    assert outcome.ok == 2
    assert sorted(record.prefilled_at_ms or 0.0 for record in records) == pytest.approx([100.0, 200.0])
    assert {record.prefill for record in records} == {"prefill-1"}


def test_a_dead_decode_workers_streams_are_broken_off() -> None:
    """At 215 ms the client has a token: the request failed. One that comes after finds the worker back at 300 ms."""
    deployment = made.pairs(failures=(Failure(worker="decode-0", at_ms=215.0, down_ms=85.0),))
    outcome, records = served(deployment, at(0.0, 400.0))
    assert [record.ending for record in records] == ["failed", "ok"]
    assert (outcome.failed, outcome.good) == (1, 1)


def test_a_prefill_worker_that_dies_before_its_kv_is_pulled() -> None:
    """The decode worker computes the whole request instead, as the router has it: 100 ms from 150 ms on."""
    deployment = made.pairs(failures=(Failure(worker="prefill-0", at_ms=150.0),))
    _, (record,) = served(deployment, at(0.0))
    assert (record.ending, record.prefill, record.decode) == ("ok", None, "decode-0")
    assert record.ttft_ms == pytest.approx(250.0)


def test_nobody_is_there() -> None:
    deployment = replace(made.aggregated(), failures=(Failure(worker="aggregated-0", at_ms=0.0),))
    outcome, _ = served(deployment, at(0.0))
    assert (outcome.refused, outcome.good_per_s) == (1, 0.0)


def test_the_routers_own_choice_keeps_to_the_near_decode_worker() -> None:
    """With one far and one near partner and little load every request goes near."""
    uplink = Link("uplink", 0.1, "made")
    deployment = made.pairs(1, 2)
    near, far = deployment.flows["prefill-0", "decode-0"], deployment.flows["prefill-0", "decode-1"]
    deployment = replace(
        deployment,
        flows={
            ("prefill-0", "decode-0"): near,
            ("prefill-0", "decode-1"): (Flow((*far[0].links, uplink), 1.0),),
        },
    )
    _, records = served(deployment, at(*(1000.0 * number for number in range(8))))
    assert {record.decode for record in records} == {"decode-0"}


def test_kv_that_need_not_move_is_there_at_once() -> None:
    """The second request's KV is asked for at 200 ms, as a step of the first one begins: it joins at 210 ms."""
    deployment = made.pairs(prefill={"scheduling": {"token_budget": 100}})
    deployment = replace(deployment, flows={("prefill-0", "decode-0"): ()})
    _, (first, second) = served(deployment, at(0.0, 0.0, lengths=Lengths(100, 30)))
    assert first.ttft_ms == pytest.approx(110.0)
    assert second.transferred_at_ms == pytest.approx(200.0)
    assert second.ttft_ms == pytest.approx(220.0)


def test_what_is_not_known_is_said() -> None:
    outcome, _ = served(made.pairs(decode={"kv_tokens": 1000}), at(0.0))
    assert outcome.remarks == ("KV capacity of prefill-0 is not known and was taken to be without limit",)
    silent, _ = served(replace(made.pairs(), kv_bytes=None), at(0.0))
    assert silent.remarks[-1] == "no KV size was given: handovers moved nothing"
