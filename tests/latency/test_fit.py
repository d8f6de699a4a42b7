"""Fits of runs whose step times are known, and runs that say too little."""

from random import Random
from typing import Any

import pytest

from hpcserve.errors import HpcserveError
from hpcserve.latency import Chunk, LinearLatency, fit, model_of
from hpcserve.nouns import DecodeLine, Plan, PrefillLine, Run, Sample, Validity
from tests import synthetic
from tests.latency.world import alone, rate

TRUE = LinearLatency(
    prefill_base_ms=20.0,
    prefill_ms_per_token=0.2,
    prefill_ms_per_token2=2e-5,
    decode_base_ms=15.0,
    decode_ms_per_sequence=1.5,
    decode_ms_per_context_token=0.004,
    kv_tokens=None,
    source="made up",
    kind="predicted",
)


def arrivals(rate_per_s: float, count: int, seed: int = 1) -> list[float]:
    source, now, found = Random(seed), 0.0, []  # noqa: S311 - arrivals, not secrets
    for _ in range(count):
        now += source.expovariate(rate_per_s)
        found.append(now)
    return found


def several_lengths() -> list[Run]:
    lone = [alone(TRUE, input_tokens=tokens, sweep=f"of-{tokens}") for tokens in (256, 1024, 4096)]
    loaded = [
        rate(TRUE, input_tokens=tokens, starts_s=arrivals(each, 60), number=each, sweep=sweep, output_tokens=32)
        for tokens, sweep in ((256, "of-256"), (1024, "of-1024"))
        for each in (1.0, 2.5, 4.0)
    ]
    return lone + loaded


def test_the_coefficients_come_back_and_the_transfer_is_taken_off() -> None:
    found = fit(several_lengths(), kv_tokens=5000)
    assert isinstance(found.prefill, PrefillLine)
    assert isinstance(found.decode, DecodeLine)
    assert found.prefill.ms_per_token == pytest.approx(TRUE.prefill_ms_per_token, rel=0.03)
    assert found.prefill.ms_per_token2 == pytest.approx(TRUE.prefill_ms_per_token2, rel=0.1)
    assert found.decode.ms_per_sequence == pytest.approx(TRUE.decode_ms_per_sequence, rel=0.2)
    assert found.decode.ms_per_context_token == pytest.approx(TRUE.decode_ms_per_context_token, rel=0.2)
    model = model_of(found)
    for tokens in (128, 512, 3000, 6000):
        assert model.prefill_ms([Chunk(tokens, 0)]) == pytest.approx(TRUE.prefill_ms([Chunk(tokens, 0)]), rel=0.05)
    for sequences, context in ((1, 256), (4, 4000), (6, 3000)):
        assert model.decode_ms(sequences, context) == pytest.approx(TRUE.decode_ms(sequences, context), rel=0.05)
    assert (found.kind, found.kv_tokens, found.model, found.gpu) == ("measured", 5000, "tiny", "cpu")
    assert found.prefill.residual is not None
    assert found.prefill.residual.median < 0.02
    assert found.decode.residual is not None
    assert found.decode.residual.n > 300
    assert any("less the measured transfer" in note for note in found.notes)


@pytest.mark.parametrize("transfer_ms", [0.5, 40.0, 900.0])
def test_another_transfer_time_gives_the_same_prefill(transfer_ms: float) -> None:
    runs = [alone(TRUE, input_tokens=tokens, transfer_ms=transfer_ms, sweep=f"of-{tokens}") for tokens in (256, 4096)]
    loaded = rate(TRUE, input_tokens=256, starts_s=arrivals(4, 60), transfer_ms=transfer_ms, sweep="of-256")
    found = fit([*runs, loaded])
    assert model_of(found).prefill_ms([Chunk(256, 0)]) == pytest.approx(TRUE.prefill_ms([Chunk(256, 0)]), rel=0.02)
    assert model_of(found).prefill_ms([Chunk(4096, 0)]) == pytest.approx(TRUE.prefill_ms([Chunk(4096, 0)]), rel=0.02)


def test_one_sweep_with_a_cached_prefix_gives_a_base_and_says_what_it_cannot_know() -> None:
    runs = [
        alone(TRUE, input_tokens=512),
        rate(TRUE, input_tokens=512, cached=480, starts_s=arrivals(0.5, 40), number=0.5),
        rate(TRUE, input_tokens=512, cached=480, starts_s=arrivals(8, 80), number=8.0),
    ]
    found = fit(runs)
    assert isinstance(found.prefill, PrefillLine)
    assert found.prefill.ms_per_token2 == 0
    model = model_of(found)
    assert model.prefill_ms([Chunk(512, 0)]) == pytest.approx(TRUE.prefill_ms([Chunk(512, 0)]), rel=0.05)
    assert model.prefill_ms([Chunk(32, 480)]) == pytest.approx(TRUE.prefill_ms([Chunk(32, 480)]), rel=0.05)
    assert model.decode_ms(4, 4 * 520) == pytest.approx(TRUE.decode_ms(4, 4 * 520), rel=0.05)
    assert any("attention's share is not determined" in note for note in found.notes)
    assert any("contexts near 520 tokens" in note for note in found.notes)


def test_the_router_is_taken_off_where_its_time_is_known() -> None:
    plain = fit(several_lengths())
    less = fit(several_lengths(), router_ms=8.0)
    assert isinstance(plain.prefill, PrefillLine)
    assert isinstance(less.prefill, PrefillLine)
    assert plain.prefill.base_ms - less.prefill.base_ms == pytest.approx(8, abs=0.3)
    assert any("8 ms of each TTFT" in note for note in less.notes)
    assert any("in the base of prefill" in note for note in plain.notes)


def test_a_run_whose_transfers_were_not_timed_is_left_out_and_not_counted() -> None:
    untimed = alone(TRUE, input_tokens=700, sweep="untimed").model_copy(update={"transfers": None})
    found, without = fit([*several_lengths(), untimed]), fit(several_lengths())
    assert (found.prefill, found.decode, found.source) == (without.prefill, without.decode, without.source)
    assert any(note.endswith("its transfers were not timed") for note in found.notes)


@pytest.mark.parametrize("args", [("--max-num-batched-tokens", "1024"), ("--max_num_batched_tokens=1K",)])
def test_a_limit_of_tokens_in_a_step_makes_steps_that_each_pay_the_base(args: tuple[str, ...]) -> None:
    def in_chunks(tokens: int) -> Run:
        made = alone(TRUE, input_tokens=tokens, sweep=f"of-{tokens}")
        more_ms = (-(-tokens // 1024) - 1) * TRUE.prefill_base_ms
        samples = tuple(one.model_copy(update={"ttft_ms": (one.ttft_ms or 0) + more_ms}) for one in made.samples)
        service = synthetic.service(args=args)
        return made.model_copy(update={"samples": samples, "service": service})

    runs = [in_chunks(tokens) for tokens in (256, 1024, 4096, 8192)]
    found = fit([*runs, rate(TRUE, input_tokens=256, starts_s=arrivals(4, 60), sweep="of-256")])
    assert isinstance(found.prefill, PrefillLine)
    assert found.prefill.base_ms == pytest.approx(20, rel=0.05)
    assert found.prefill.ms_per_token == pytest.approx(0.2, rel=0.03)


def test_an_aggregated_worker_has_no_transfer_and_no_step_to_take_off() -> None:
    def aggregated(run: Run) -> Run:
        return run.model_copy(update={"plan": synthetic.aggregated_plan(), "transfers": None})

    def alone_at(tokens: int) -> Run:
        made = alone(TRUE, input_tokens=tokens, transfer_ms=0.0, sweep=f"of-{tokens}")
        first = TRUE.prefill_ms([Chunk(tokens, 0)])
        samples = tuple(one.model_copy(update={"ttft_ms": first}) for one in made.samples)
        return aggregated(made.model_copy(update={"samples": samples}))

    together = tuple(
        Sample(
            start_s=0.001 * index, input_tokens=512, output_tokens=101, ttft_ms=500.0, tpot_ms=15 + 6 + 4 * 562 * 0.004
        )
        for index in range(4)
    )
    four = rate(TRUE, input_tokens=512, starts_s=[0.0])
    four = aggregated(four.model_copy(update={"samples": together}))
    found = fit([alone_at(256), alone_at(1024), alone_at(4096), four])
    assert isinstance(found.prefill, PrefillLine)
    assert found.prefill.base_ms == pytest.approx(20, rel=0.01)
    assert model_of(found).decode_ms(4, 4 * 562) == pytest.approx(15 + 6 + 4 * 562 * 0.004, rel=0.05)


def test_runs_of_one_length_do_not_determine_prefill() -> None:
    with pytest.raises(HpcserveError, match="prompts of 512 computed tokens") as caught:
        fit([alone(TRUE, input_tokens=512)])
    assert "another input_tokens" in caught.value.remedy


def test_runs_without_company_do_not_determine_decode() -> None:
    with pytest.raises(HpcserveError, match="at most 1 sequences") as caught:
        fit([alone(TRUE, input_tokens=tokens, sweep=f"of-{tokens}") for tokens in (256, 1024, 4096)])
    assert "kind `rate`" in caught.value.remedy


def test_requests_that_always_met_others_do_not_tell_of_prefill() -> None:
    with pytest.raises(HpcserveError, match="was alone") as caught:
        fit([rate(TRUE, input_tokens=512, starts_s=[0.01 * index for index in range(50)])])
    assert "`alone`" in caught.value.remedy


def test_invalid_runs_are_not_used() -> None:
    wrong = alone(TRUE, input_tokens=2048, sweep="wrong", transfer_ms=1.0)
    samples = tuple(one.model_copy(update={"ttft_ms": 9e6}) for one in wrong.samples)
    wrong = wrong.model_copy(update={"samples": samples, "validity": Validity(valid=False, reasons=("too busy",))})
    assert fit([*several_lengths(), wrong]) == fit(several_lengths())
    with pytest.raises(HpcserveError, match="none of 1 runs is valid"):
        fit([wrong])


def _plan(run: Run, **changes: Any) -> Run:
    plan = run.plan
    assert isinstance(plan, Plan)
    workers = tuple(worker.model_copy(update=changes) for worker in plan.workers)
    return run.model_copy(update={"plan": plan.model_copy(update={"workers": workers})})


@pytest.mark.parametrize(
    "change",
    [
        lambda run: _plan(run, tensor_parallel=2),
        lambda run: run.model_copy(update={"service": synthetic.service(model="other")}),
        lambda run: run.model_copy(update={"environment": {"engines": "vllm 9.9"}}),
        lambda run: run.model_copy(update={"simulated": True}),
    ],
)
def test_runs_of_different_workers_are_not_mixed(change: Any) -> None:
    runs = several_lengths()
    with pytest.raises(HpcserveError, match="different workers") as caught:
        fit([*runs[:-1], change(runs[-1])])
    assert "--placement" in caught.value.remedy


def test_a_coefficient_that_would_be_negative_is_0_and_told() -> None:
    """Times that grow faster than a line can: attention takes all of it."""

    def odd(tokens: int, ttft_ms: float) -> Run:
        made = alone(TRUE, input_tokens=tokens, transfer_ms=0.0, sweep=f"of-{tokens}")
        samples = tuple(one.model_copy(update={"ttft_ms": ttft_ms, "tpot_ms": 20.0}) for one in made.samples)
        return made.model_copy(update={"samples": samples})

    loaded = rate(TRUE, input_tokens=256, starts_s=arrivals(4, 60), transfer_ms=0.0, sweep="of-256")
    found = fit([odd(1000, 70.0), odd(2000, 170.0), odd(4000, 370.0), loaded])
    assert isinstance(found.prefill, PrefillLine)
    assert found.prefill.ms_per_token == 0
    assert any(note.startswith("prefill: the fit would put time per token below 0") for note in found.notes)


def test_requests_of_one_token_tell_nothing() -> None:
    made = alone(TRUE, input_tokens=256)
    samples = tuple(one.model_copy(update={"output_tokens": 1, "tpot_ms": None}) for one in made.samples)
    with pytest.raises(HpcserveError, match="was alone") as caught:
        fit([made.model_copy(update={"samples": samples})])
    assert "2 output tokens" in caught.value.remedy


def test_a_simulated_engine_is_not_called_measured() -> None:
    found = fit([run.model_copy(update={"simulated": True}) for run in several_lengths()])
    assert found.kind == "predicted"
    assert any("simulated" in note for note in found.notes)


def test_a_few_odd_requests_do_not_bend_the_fit_and_show_in_the_worst_residual() -> None:
    runs = several_lengths()
    odd = runs[1].samples[3].model_copy(update={"ttft_ms": 5_000.0})
    runs[1] = runs[1].model_copy(update={"samples": (*runs[1].samples[:3], odd, *runs[1].samples[4:])})
    found = fit(runs)
    assert isinstance(found.prefill, PrefillLine)
    assert found.prefill.ms_per_token == pytest.approx(0.2, rel=0.03)
    assert found.prefill.residual is not None
    assert found.prefill.residual.worst > 0.9


def test_the_order_of_the_runs_does_not_matter() -> None:
    runs = several_lengths()
    assert fit(reversed(runs)) == fit(runs)
