"""When separating the phases gives nothing: each rule with the numbers that make it apply."""

from collections.abc import Callable
from dataclasses import dataclass

from hpcserve.nouns import NoBenefit
from hpcserve.units import ms_text

__all__ = ["NDR_PORT_GB_PER_S", "SHARE_OF_PREFILL", "Against", "Situation", "rules_against"]

SHARE_OF_PREFILL = 0.10
"""The transfer must stay under this share of the prefill's compute time: a rule of thumb of disaggregated serving; its
delay then hides in the spread of the prefill times themselves."""

NDR_PORT_GB_PER_S = 38.0
"""What one 400 Gbit/s InfiniBand port carries in reads: UCX's own estimate (UCT_IB_NDR_READ_PATH_BANDWIDTH)."""

_LOW_LOAD = 0.10
"""Share of the time below which prefill is met too rarely to disturb decode: the attainment target of 90 % leaves that
many tokens late."""
_MOSTLY_CACHED = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the rules look at, of one typical request; None where nobody knows."""

    transfer_ms: float
    kv_bytes: int
    rank_paths: int
    input_tokens: int
    cached_tokens: int
    prefill_ms: float | None
    """Of the tokens that are not cached."""
    whole_prefill_ms: float | None
    """Of all its tokens."""
    tpot_limit_ms: float
    decode_step_ms: float | None = None
    """Of one sequence of that length."""
    mixed_step_ms: float | None = None
    """The longest step of an aggregated worker that both prefills and decodes."""
    requests_per_s: float | None = None
    workers: int = 1
    """Aggregated workers that would share the load."""

    @property
    def share(self) -> float | None:
        """Transfer time as a share of the prefill's."""
        return None if self.prefill_ms is None else self.transfer_ms / self.prefill_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """A rule that applies, and why."""

    rule: NoBenefit
    words: str

    @property
    def line(self) -> str:
        """As it is printed."""
        return f"{self.rule}: {self.words}"


def rules_against(situation: Situation) -> tuple[Against, ...]:
    """The rules that apply, in a fixed order. What is not known makes none apply."""
    found = ((rule, words(situation)) for rule, words in _RULES.items())
    return tuple(Against(rule=rule, words=said) for rule, said in found if said is not None)


def _slow_link(case: Situation) -> str | None:
    if case.prefill_ms is None or case.share is None or case.share < SHARE_OF_PREFILL:
        return None
    needed = case.kv_bytes / (SHARE_OF_PREFILL * case.prefill_ms) / 1e6
    return (
        f"the transfer takes {case.share:.1%} of the prefill's time, not under {SHARE_OF_PREFILL:.0%}; these prompts "
        f"would need a path of {needed:.3g} GB/s"
    )


def _short_prompts(case: Situation) -> str | None:
    if case.prefill_ms is None:
        return None
    limit, what = (
        (case.tpot_limit_ms, "the TPOT limit")
        if case.decode_step_ms is None
        else (case.decode_step_ms, "a decode step")
    )
    if case.prefill_ms > limit:
        return None
    return (
        f"computing a prompt takes {ms_text(case.prefill_ms)} ms, no longer than {what} of {ms_text(limit)} ms; beside "
        "decode it hardly disturbs"
    )


def _low_load(case: Situation) -> str | None:
    if case.prefill_ms is None or case.requests_per_s is None:
        return None
    busy = case.requests_per_s * case.prefill_ms / 1e3 / case.workers
    if busy >= _LOW_LOAD:
        return None
    return (
        f"at {case.requests_per_s:g} requests/s each of {case.workers} aggregated workers computes prompts {busy:.1%} "
        f"of the time, under {_LOW_LOAD:.0%}; decode is rarely disturbed"
    )


def _small_model(case: Situation) -> str | None:
    if case.whole_prefill_ms is None:
        return None
    needed = case.kv_bytes / case.rank_paths / (SHARE_OF_PREFILL * case.whole_prefill_ms) / 1e6
    if needed <= NDR_PORT_GB_PER_S:
        return None
    return (
        f"it computes a prompt in {ms_text(case.whole_prefill_ms)} ms, so quickly that its KV would need {needed:.3g} "
        f"GB/s for each GPU, more than a 400 Gbit/s port carries ({NDR_PORT_GB_PER_S:g} GB/s)"
    )


def _loose_slo(case: Situation) -> str | None:
    if case.mixed_step_ms is None or case.mixed_step_ms > case.tpot_limit_ms:
        return None
    return (
        f"even the longest step that computes prompts beside decode takes {ms_text(case.mixed_step_ms)} ms, within the "
        f"TPOT limit of {ms_text(case.tpot_limit_ms)} ms: there is no interference to remove"
    )


def _prefix_reuse(case: Situation) -> str | None:
    share = case.cached_tokens / case.input_tokens
    if share < _MOSTLY_CACHED:
        return None
    computed = case.input_tokens - case.cached_tokens
    return (
        f"{share:.1%} of the input is a cached prefix; only {computed} tokens are computed, and the KV of "
        f"{case.input_tokens} would move: keep requests where their prefix is (KV-aware routing, offload)"
    )


_RULES: dict[NoBenefit, Callable[[Situation], str | None]] = {
    "slow link": _slow_link,
    "small model": _small_model,
    "short prompts": _short_prompts,
    "low load": _low_load,
    "loose SLO": _loose_slo,
    "prefix reuse first": _prefix_reuse,
}
