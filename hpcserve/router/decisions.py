"""The last choices, with what each was expected to cost; nothing of a prompt but its length."""

from collections.abc import Iterable
from math import isfinite

import msgspec

from hpcserve.routing import Refusal, Route

__all__ = ["KEPT_DECISIONS", "Decision", "decisions_text"]

KEPT_DECISIONS = 64


class Decision(msgspec.Struct, frozen=True):
    """One choice, as it was made."""

    at_s: float
    request_id: str
    prompt_tokens: float
    held: int
    """Prompt tokens whose KV the chosen prefill worker was expected to have."""
    chosen: Route | Refusal


def decisions_text(decisions: Iterable[Decision], *, now_s: float) -> bytes:
    """`GET /debug/decision`: newest first."""
    shown = [_shown(decision, now_s) for decision in decisions]
    return msgspec.json.encode({"decisions": shown[::-1]})


def _shown(decision: Decision, now_s: float) -> dict[str, object]:
    chosen = decision.chosen
    said: dict[str, object] = {
        "age_s": round(now_s - decision.at_s, 3),
        "request_id": decision.request_id,
        "prompt_tokens": round(decision.prompt_tokens),
        "cached_tokens": decision.held,
    }
    if isinstance(chosen, Refusal):
        return said | {"refused": chosen.code, "message": chosen.message}
    estimate = chosen.estimate
    costs = estimate._asdict() | {"ttft_ms": estimate.ttft_ms, "cost_ms": estimate.cost_ms}
    return said | {
        "prefill": None if chosen.prefill is None else chosen.prefill.id,
        "decode": chosen.decode.id,
        "whole_because": chosen.reason or None,
        "expected": {name: round(ms, 3) if isfinite(ms) else None for name, ms in costs.items()},
    }
