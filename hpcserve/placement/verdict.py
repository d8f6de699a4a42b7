"""Whether disaggregation pays on the placed paths, in words with numbers."""

from collections.abc import Sequence

from hpcserve.errors import PlacementError
from hpcserve.nouns import PathCost, Service, Verdict
from hpcserve.units import ms_text

__all__ = ["SHARE_OF_PREFILL", "cannot_be_separate", "judge", "of_the_alternative", "without_phases"]

SHARE_OF_PREFILL = 0.10
"""The transfer must stay under this share of the prefill's compute time: a rule of thumb of disaggregated serving; its
delay then hides in the spread of the prefill times themselves."""


def judge(service: Service, paths: Sequence[PathCost]) -> Verdict:
    """The verdict on the slowest of the paths, for the service's typical request.

    The KV of all input tokens moves, cached ones too; only those not cached are computed. Where the prefill speed is
    not known there is no claim: the verdict says which key gives it, and does not advise disaggregation.
    """
    slowest = max(paths, key=lambda path: path.transfer_ms)
    load = service.workload
    computed = load.input_tokens - load.cached_prefix_tokens
    moved = (
        f"the KV of {load.input_tokens} input tokens, {slowest.kv_bytes / 1e6:.2f} MB, takes "
        f"{ms_text(slowest.transfer_ms)} ms from {slowest.prefill} to {slowest.decode}, the slowest path "
        f"({slowest.distance}, {slowest.gb_per_s:.4g} GB/s)"
    )
    speed = load.prefill_tokens_per_s
    if speed is None:
        unknown = (
            f"unknown whether that pays: it does if the prefill of {computed} tokens takes more than "
            f"{ms_text(slowest.transfer_ms / SHARE_OF_PREFILL)} ms; workload.prefill_tokens_per_s (measured) would tell"
        )
        return Verdict(
            disaggregate=False,
            reasons=(moved, unknown, "until then aggregated serving is the safe choice"),
            worst_transfer_ms=slowest.transfer_ms,
            prefill_ms=None,
        )
    prefill_ms = computed / speed * 1e3
    share = slowest.transfer_ms / prefill_ms
    pays = share < SHARE_OF_PREFILL
    cached = f" (of {load.input_tokens}, {load.cached_prefix_tokens} cached)" if load.cached_prefix_tokens else ""
    compared = (
        f"computing the prefill of {computed} tokens{cached} takes {ms_text(prefill_ms)} ms at {speed:g} tokens/s; the "
        f"transfer adds {share:.1%} to it, {'under' if pays else 'not under'} the limit of {SHARE_OF_PREFILL:.0%}"
    )
    return Verdict(
        disaggregate=pays,
        reasons=(moved, compared, "disaggregation pays on these paths" if pays else _advice(slowest, prefill_ms)),
        worst_transfer_ms=slowest.transfer_ms,
        prefill_ms=prefill_ms,
    )


def _advice(slowest: PathCost, prefill_ms: float) -> str:
    needed = slowest.kv_bytes / (SHARE_OF_PREFILL * prefill_ms) / 1e6
    return f"aggregated serving is better; these prompts would need a path of {needed:.3g} GB/s"


def of_the_alternative(verdict: Verdict) -> Verdict:
    """The verdict beside an aggregated plan: its workers and paths are those of the plan that was not taken."""
    first, *others = verdict.reasons
    said = f"with prefill and decode on workers of their own, {first}"
    return verdict.model_copy(update={"reasons": (said, *others)})


def without_phases() -> Verdict:
    """The verdict where the service has no prefill and decode pools to compare."""
    return Verdict(
        disaggregate=False,
        reasons=("the service has no pools of prefill and decode workers: there is nothing to hand over",),
        worst_transfer_ms=None,
        prefill_ms=None,
    )


def cannot_be_separate(error: PlacementError) -> Verdict:
    """The verdict where prefill and decode cannot be placed apart at all."""
    return Verdict(
        disaggregate=False,
        reasons=(f"prefill and decode cannot be placed apart: {error.message}", error.remedy or "aggregated remains"),
        worst_transfer_ms=None,
        prefill_ms=None,
    )
