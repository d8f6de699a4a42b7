"""The verdict by simulation: goodput of the ways under the SLO, and the rules that explain it."""

from collections.abc import Mapping
from dataclasses import replace

from hpcserve.errors import PlacementError
from hpcserve.latency import Chunk, LatencyModel
from hpcserve.nouns import Evidence, Role, Service, Verdict
from hpcserve.placement.shape_rates import longest_mixed_ms, typical_prompt
from hpcserve.placement.shape_trial import NOTICED, Bench, Trial
from hpcserve.placement.verdict import computed_words, moved_words, situation_of, weight_of
from hpcserve.placement.verdict_evidence import Number, evidence_of, numbers
from hpcserve.placement.verdict_rules import Situation, rules_against
from hpcserve.units import ms_text

__all__ = ["judge_alone", "judge_simulated"]


def judge_simulated(bench: Bench, separate: Trial, whole: Trial) -> Verdict:
    """The verdict on two trials; where they give the same the aggregated one is taken, which has fewer parts."""
    disaggregate, sentence = _decided(bench.service, separate, whole)
    return _verdict(bench, separate, whole, disaggregate=disaggregate, sentence=sentence)


def judge_alone(bench: Bench, separate: Trial, why: PlacementError) -> Verdict:
    """The verdict where no aggregated way could be tried, and `why`."""
    given = f"{separate.rate:.3g} good requests/s" if separate.rate else "the SLO is missed even at the lowest rate"
    said = f"aggregated serving could not be compared ({why.message}); {given}, {_under(bench.service)}"
    return _verdict(bench, separate, None, disaggregate=True, sentence=f"separate prefill and decode: {said}")


def _verdict(bench: Bench, separate: Trial, whole: Trial | None, *, disaggregate: bool, sentence: str) -> Verdict:
    slowest = max(separate.plan.paths, key=lambda path: path.transfer_ms)
    service = bench.service
    case = _situation(bench, separate, whole)
    against = rules_against(case)
    pays = disaggregate and whole is not None
    prefix = "counted in the simulation, and it pays all the same: " if pays else ""
    source = _slowest_prefiller(bench, separate).source
    return Verdict(
        disaggregate=disaggregate,
        basis="simulation",
        transfer=None if case.share is None else weight_of(case.share),
        reasons=(
            sentence,
            moved_words(case, slowest),
            computed_words(case, ttft_limit_ms=service.slo.ttft_ms, how=f"(predicted: {source})"),
            *(_compared(bench, separate, whole) if whole is not None else ()),
            *(prefix + one.line for one in against),
            *dict.fromkeys((*separate.remarks, *(whole.remarks if whole is not None else ()))),
        ),
        worst_transfer_ms=slowest.transfer_ms,
        prefill_ms=case.prefill_ms,
        against=tuple(one.rule for one in against),
        evidence=(
            *evidence_of(service, slowest, case, prefill_source=source),
            *_simulated(service, {"separate": separate, "aggregated": whole}),
        ),
    )


def _decided(service: Service, separate: Trial, whole: Trial) -> tuple[bool, str]:
    """Whether to separate, and the verdict in one sentence."""
    load, slo, under = service.workload.requests_per_s, service.slo, _under(service)
    if load is not None and separate.at_load is not None and whole.at_load is not None:
        met = {"separate": separate.at_load.attainment, "aggregated": whole.at_load.attainment}
        shares = ", ".join(f"{share:.1%} of requests {way}" for way, share in met.items())
        rate = f"at {load:g} requests/s"
        if met["aggregated"] >= slo.attainment:
            return False, f"serve aggregated: {rate} it meets the SLO, separating gains nothing ({shares}; {under})"
        if met["separate"] >= slo.attainment:
            return True, f"separate prefill and decode: {rate} only that meets the SLO ({shares}; {under})"
        under += f"; at {load:g} requests/s both miss the SLO"
    if not separate.rate and not whole.rate:
        return False, f"serve aggregated: neither way meets the SLO even at the lowest rate, {under}"
    apart, together = f"{separate.per_gpu:.3g}", f"{whole.per_gpu:.3g}"
    per_gpu = "good requests/s per GPU against"
    if separate.per_gpu > whole.per_gpu * (1 + NOTICED):
        return True, f"separate prefill and decode: {apart} {per_gpu} {together} aggregated, {under}"
    return False, f"serve aggregated: {together} {per_gpu} {apart} separate, {under}"


def _under(service: Service) -> str:
    slo = service.slo
    return f"simulated under TTFT {slo.ttft_ms:g} ms and TPOT {slo.tpot_ms:g} ms for {slo.attainment:.0%} of requests"


def _compared(bench: Bench, separate: Trial, whole: Trial) -> tuple[str, ...]:
    """What separating removes and what it costs: at the load, else at the lower of both goodputs."""
    rate = bench.service.workload.requests_per_s or min(separate.rate, whole.rate)
    if not rate:
        return ()
    apart, together = bench.at(separate.deployment, rate), bench.at(whole.deployment, rate)
    words = [
        f"{what} is {_ms(one)} separate and {_ms(other)} aggregated"
        for what, one, other in (
            ("TPOT", apart.tpot_ms.p90, together.tpot_ms.p90),
            ("TTFT", apart.ttft_ms.p90, together.ttft_ms.p90),
        )
        if one is not None or other is not None
    ]
    gpus = f"{separate.gpus} GPUs against {whole.gpus}"
    return (f"at {rate:.3g} requests/s (simulated, 90th percentiles) {', '.join(words)}, on {gpus}",)


def _ms(value_ms: float | None) -> str:
    return "unknown" if value_ms is None else f"{ms_text(value_ms)} ms"


def _situation(bench: Bench, separate: Trial, whole: Trial | None) -> Situation:
    service, load = bench.service, bench.service.workload
    slowest = max(separate.plan.paths, key=lambda path: path.transfer_ms)
    prefiller = _slowest_prefiller(bench, separate)
    decoders = [bench.model_of(pool) for pool in separate.shape.pools if pool.role == Role.DECODE]
    case = replace(
        situation_of(service, slowest),
        prefill_ms=prefiller.prefill_ms((typical_prompt(load),)),
        whole_prefill_ms=prefiller.prefill_ms((Chunk(load.input_tokens, 0),)),
        decode_step_ms=max(one.decode_ms(1, load.input_tokens) for one in decoders),
    )
    if whole is None:
        return case
    return replace(
        case,
        mixed_step_ms=max(
            longest_mixed_ms(
                bench.model_of(pool),
                workload=load,
                slo=service.slo,
                scheduling=bench.scheduling_of(pool),
            )
            for pool in whole.shape.pools
        ),
        workers=sum(pool.workers for pool in whole.shape.pools),
    )


def _slowest_prefiller(bench: Bench, separate: Trial) -> LatencyModel:
    prompt = (Chunk(bench.service.workload.input_tokens, 0),)
    models = (bench.model_of(pool) for pool in separate.shape.pools if pool.role == Role.PREFILL)
    return max(models, key=lambda model: model.prefill_ms(prompt))


def _simulated(service: Service, trials: Mapping[str, Trial | None]) -> tuple[Evidence, ...]:
    """What the simulations gave, and the formulas that chose what was simulated."""
    found: list[Number] = []
    quick: list[Number] = []
    for way, trial in trials.items():
        if trial is None:
            continue
        found += [
            (f"goodput, {way}", trial.rate, "requests/s", f"{trial.shape.name}; {trial.best.requests} requests a run"),
            (f"goodput per GPU, {way}", trial.per_gpu, "requests/s", f"goodput / {trial.gpus} GPUs"),
        ]
        source = f"queueing formulas, for {trial.shape.name}; they choose what is simulated"
        quick.append((f"rate by formulas, {way}", trial.quick, "requests/s", source))
        if trial.at_load is not None:
            at = f"{way}, at {service.workload.requests_per_s:g} requests/s"
            found += [
                (f"attainment {at}", trial.at_load.attainment, "share", trial.shape.name),
                (f"TTFT {at}, 90th percentile", trial.at_load.ttft_ms.p90, "ms", trial.shape.name),
                (f"TPOT {at}, 90th percentile", trial.at_load.tpot_ms.p90, "ms", trial.shape.name),
            ]
    return *numbers("predicted", quick), *numbers("simulated", found)
