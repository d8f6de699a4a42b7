"""Whether disaggregation pays on the placed paths: one sentence with the numbers that decide, then why."""

from collections.abc import Sequence

from hpcserve.errors import PlacementError
from hpcserve.nouns import PathCost, Role, Service, TransferWeight, Verdict
from hpcserve.placement.verdict_evidence import evidence_of
from hpcserve.placement.verdict_rules import SHARE_OF_PREFILL, Situation, rules_against
from hpcserve.units import ms_text

__all__ = [
    "cannot_be_separate",
    "computed_words",
    "judge",
    "moved_words",
    "of_the_alternative",
    "situation_of",
    "weight_of",
    "without_phases",
]

_NOT_SIMULATED = "a rule of thumb on one typical request, not simulated; a latency model (--latency) would tell more"


def judge(service: Service, paths: Sequence[PathCost]) -> Verdict:
    """The verdict on the slowest of the paths, for the service's typical request.

    The KV of all input tokens moves, cached ones too; only those not cached are computed. Where the prefill speed is
    not known there is no claim: the verdict says which key gives it, and does not advise disaggregation.
    """
    slowest = max(paths, key=lambda path: path.transfer_ms)
    case = situation_of(service, slowest)
    against = rules_against(case)
    if case.prefill_ms is None or case.share is None:
        weight, is_late, sentence = None, False, _sentence_unknown(case)
    else:
        weight = weight_of(case.share)
        is_late = case.prefill_ms <= service.slo.ttft_ms < case.prefill_ms + case.transfer_ms
        sentence = _sentence(weight, case.transfer_ms, case.prefill_ms)
        if weight == "hidden" and is_late:
            sentence = _sentence_late(case.transfer_ms, case.prefill_ms, service.slo.ttft_ms)
    speed = f"at {service.workload.prefill_tokens_per_s:g} tokens/s" if weight is not None else ""
    return Verdict(
        disaggregate=weight == "hidden" and not is_late,
        transfer=weight,
        reasons=(
            sentence,
            moved_words(case, slowest),
            *((computed_words(case, ttft_limit_ms=service.slo.ttft_ms, how=speed),) if weight is not None else ()),
            *(one.line for one in against),
            *((_NOT_SIMULATED,) if weight is not None else ()),
        ),
        worst_transfer_ms=slowest.transfer_ms,
        prefill_ms=case.prefill_ms,
        against=tuple(one.rule for one in against),
        evidence=evidence_of(service, slowest, case),
    )


def situation_of(service: Service, slowest: PathCost) -> Situation:
    """What the rules look at, as far as the service itself says it."""
    load = service.workload
    speed = load.prefill_tokens_per_s
    computed = load.input_tokens - load.cached_prefix_tokens
    return Situation(
        transfer_ms=slowest.transfer_ms,
        kv_bytes=slowest.kv_bytes,
        rank_paths=slowest.rank_paths,
        input_tokens=load.input_tokens,
        cached_tokens=load.cached_prefix_tokens,
        prefill_ms=None if speed is None else computed / speed * 1e3,
        whole_prefill_ms=None if speed is None else load.input_tokens / speed * 1e3,
        tpot_limit_ms=service.slo.tpot_ms,
        requests_per_s=load.requests_per_s,
        workers=_aggregated_workers(service),
    )


def weight_of(share: float) -> TransferWeight:
    """What a transfer is beside the prefill, given its share of the prefill's time."""
    if share < SHARE_OF_PREFILL:
        return "hidden"
    return "visible" if share < 1 else "longer than the prefill"


def _aggregated_workers(service: Service) -> int:
    """Workers that would share the load if each did both phases."""
    whole = sum(pool.workers for pool in service.pools if pool.role == Role.AGGREGATED)
    return whole or sum(pool.workers for pool in service.pools)


def _sentence(weight: TransferWeight, transfer_ms: float, prefill_ms: float) -> str:
    moving = f"moving the KV takes {ms_text(transfer_ms)} ms on the slowest path"
    share = f"{transfer_ms / prefill_ms:.1%} of the prefill's {ms_text(prefill_ms)} ms"
    match weight:
        case "hidden":
            return f"separate prefill and decode: {moving}, {share}, under the limit of {SHARE_OF_PREFILL:.0%}"
        case "visible":
            return (
                f"serve aggregated, unless decode must not be disturbed: {moving}, {share}, not under the limit of "
                f"{SHARE_OF_PREFILL:.0%}"
            )
        case _:
            return f"serve aggregated: {moving}, longer than the prefill itself, {ms_text(prefill_ms)} ms"


def _sentence_late(transfer_ms: float, prefill_ms: float, limit_ms: float) -> str:
    return (
        f"serve aggregated: the prefill takes {ms_text(prefill_ms)} ms of the TTFT limit of {limit_ms:g} ms, and the "
        f"{ms_text(transfer_ms)} ms of moving the KV on the slowest path would exceed it"
    )


def _sentence_unknown(case: Situation) -> str:
    return (
        "serve aggregated until the prefill speed is known: separating pays if the prefill of "
        f"{case.input_tokens - case.cached_tokens} tokens takes more than "
        f"{ms_text(case.transfer_ms / SHARE_OF_PREFILL)} ms; workload.prefill_tokens_per_s (measured) or a latency "
        "model (--latency) would tell"
    )


def moved_words(case: Situation, slowest: PathCost) -> str:
    """What moves, from where to where, how long it is predicted to take, and where the rate comes from."""
    return (
        f"the KV of {case.input_tokens} input tokens, {slowest.kv_bytes / 1e6:.2f} MB, takes "
        f"{ms_text(slowest.transfer_ms)} ms (predicted) from {slowest.prefill} to {slowest.decode}, the slowest path "
        f"({slowest.distance}, {slowest.gb_per_s:.4g} GB/s: {slowest.source})"
    )


def computed_words(case: Situation, *, ttft_limit_ms: float, how: str) -> str:
    """What computing and moving take together, against the TTFT limit; `how`: `at 9000 tokens/s`."""
    prefill_ms = case.prefill_ms or 0.0
    both = prefill_ms + case.transfer_ms
    cached = f" (of {case.input_tokens}, {case.cached_tokens} cached)" if case.cached_tokens else ""
    limit = f"the TTFT limit of {ttft_limit_ms:g} ms"
    if both <= ttft_limit_ms:
        left = f"{ms_text(ttft_limit_ms - both)} ms are left of {limit}"
    elif prefill_ms <= ttft_limit_ms:
        left = f"only without the transfer is {limit} met"
    else:
        left = f"separate or not, {limit} is missed: try more tensor_parallel, or a looser slo.ttft_ms"
    return (
        f"computing {case.input_tokens - case.cached_tokens} tokens{cached} takes {ms_text(prefill_ms)} ms {how}, with "
        f"the transfer {ms_text(both)} ms; {left}"
    )


def of_the_alternative(verdict: Verdict) -> Verdict:
    """The verdict beside an aggregated plan: its paths are those of the plan that was not taken."""
    first, *others = verdict.reasons
    said = "transfers and paths here are those of prefill and decode on workers of their own, which was not taken"
    return verdict.model_copy(update={"reasons": (first, *others, said)})


def without_phases() -> Verdict:
    """The verdict where the service has no prefill and decode pools to compare."""
    return Verdict(
        disaggregate=False,
        reasons=("serve aggregated: the service has no pools of prefill and decode workers, nothing is handed over",),
        worst_transfer_ms=None,
        prefill_ms=None,
    )


def cannot_be_separate(error: PlacementError, *, gpus: int | None = None) -> Verdict:
    """The verdict where prefill and decode cannot be placed apart at all; `gpus`: how many there are, where known."""
    said = f"serve aggregated: prefill and decode cannot be placed apart: {error.message}"
    reasons = [said, error.remedy or "aggregated remains"]
    if gpus == 1:
        reasons.insert(1, "one GPU: it can serve one phase at a time, and two engines on it would halve its memory")
    return Verdict(
        disaggregate=False,
        reasons=tuple(reasons),
        worst_transfer_ms=None,
        prefill_ms=None,
        against=("one GPU",) if gpus == 1 else (),
    )
