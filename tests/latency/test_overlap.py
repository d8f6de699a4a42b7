"""Who was in the service together, on hand-made timelines."""

import pytest

from hpcserve.latency import fit
from hpcserve.latency.overlap import company, stays_of, undisturbed
from hpcserve.nouns import Role, Run, Sample
from tests.latency.test_fit import TRUE, arrivals, several_lengths
from tests.latency.world import rate


def sample(start_s: float, ttft_ms: float, tpot_ms: float = 100.0, output_tokens: int = 11) -> Sample:
    """Decodes for a second unless told otherwise."""
    return Sample(
        start_s=start_s, input_tokens=95, output_tokens=output_tokens, ttft_ms=ttft_ms, tpot_ms=tpot_ms
    )  # fmt: skip


def test_times_of_a_stay() -> None:
    (stay,) = stays_of([sample(2.0, 500.0)])
    assert [stay.came_s, stay.first_s, stay.ended_s] == pytest.approx([2.0, 2.5, 3.5])


def test_failed_and_short_answers_are_no_stays() -> None:
    failed = sample(0.0, 1.0).model_copy(update={"error": "no"})
    short = sample(0.0, 1.0).model_copy(update={"tpot_ms": None, "output_tokens": 1})
    assert stays_of([failed, short]) == []


def test_only_who_was_alone_until_the_first_token_is_undisturbed() -> None:
    """0 to 1.5 s; then one that comes meanwhile; one alone; one that another comes into; that other."""
    stays = stays_of(
        [sample(8.0, 500.0), sample(0.0, 500.0), sample(1.0, 500.0), sample(4.0, 500.0), sample(8.4, 500.0)]
    )
    assert [stay.came_s for stay in undisturbed(stays)] == [0.0, 4.0]


def test_who_decodes_through_all_of_it_counts_for_all_of_it() -> None:
    long = sample(0.0, 0.0, tpot_ms=1000.0)
    short = sample(3.0, 0.0)
    by_start = {stay.came_s: beside for stay, beside in company(stays_of([long, short]), interrupted=False)}
    assert by_start[3.0].sequences == pytest.approx(2)
    assert by_start[3.0].context_tokens == pytest.approx(2 * 100.5)
    assert by_start[0.0].sequences == pytest.approx(1.1)
    assert by_start[0.0].context_tokens == pytest.approx(1.1 * 100.5)


def test_who_has_no_token_yet_does_not_decode() -> None:
    found = company(stays_of([sample(0.0, 0.0), sample(0.1, 5000.0)]), interrupted=False)
    assert [beside.sequences for _, beside in found] == pytest.approx([1, 1])


def test_prefill_on_the_same_worker_interrupts_decode() -> None:
    stays = stays_of([sample(0.0, 100.0), sample(0.5, 100.0), sample(5.0, 100.0)])
    assert [stay.came_s for stay, _ in company(stays, interrupted=True)] == [0.5, 5.0]


def test_several_decode_workers_leave_runs_at_a_rate_out() -> None:
    def two(run: Run) -> Run:
        assert run.plan is not None
        more = [one.model_copy(update={"id": "decode-1"}) for one in run.plan.workers if one.role == Role.DECODE]
        plan = run.plan.model_copy(update={"workers": (*run.plan.workers, *more)})
        return run.model_copy(update={"plan": plan})

    loaded = rate(TRUE, input_tokens=256, starts_s=arrivals(4, 40), sweep="two")
    found = fit([*several_lengths(), two(loaded)])
    assert found.decode == fit(several_lengths()).decode
    assert any(note.startswith("not used: near.rate-1: nobody wrote down which") for note in found.notes)
