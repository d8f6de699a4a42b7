"""The choice: prefill workers first, then the decode workers of the best two, so that it costs P + D steps, not P x D.

What the two stages give away: at most what the first prefill worker's best partner costs now beyond what it would cost
idle and nearest. On an idle service that is nothing, and the choice is the best of all pairs.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from math import ceil, inf

from hpcserve.routing.estimate import Demand, Estimate
from hpcserve.routing.load import Load, Typical
from hpcserve.routing.route import Preferences, Refusal, Route
from hpcserve.routing.search import Search
from hpcserve.routing.table import Table

__all__ = ["choose"]

_PLAIN = Preferences()
_RETRY_AFTER_S = 2
"""A worker that is back shows within two looks at its endpoint record, one a second."""
_LONGEST_RETRY_AFTER_S = 60


def choose(
    table: Table,
    loads: Mapping[str, Load],
    typical: Typical,
    *,
    model: str | None,
    whole: str = "",
    avoid: AbstractSet[str] = frozenset(),
    turn: int = 0,
    demand: Demand | None = None,
    preferences: Preferences = _PLAIN,
) -> Route | Refusal:
    """The least expected cost in milliseconds, or why there is nobody.

    `model` None: whatever is served. `whole`: why this request must not be split; empty: split it where a pair is
    proved. `avoid`: ids of workers that just failed this request. `turn`: where a search starts: equals take turns.
    `demand`: None stands for a typical request. The formulas are those of `estimate`.
    """
    if model is not None and model not in table.models:
        return Refusal(
            status=404, code="model_not_found", message=f"The model `{model}` does not exist.", param="model"
        )
    demand = demand or Demand(prompt_tokens=typical.prompt_tokens, answer_tokens=typical.answer_tokens)
    search = Search(table, loads, typical, model=model, avoid=avoid, turn=turn, demand=demand, preferences=preferences)
    found = None if whole else search.split()
    if found is None:
        found = search.whole(whole or "no_pair")
    elif preferences.split_when_cheaper or preferences.borrow_when_cheaper:
        found = search.whole_if_cheaper(found) or found
    if found is None:
        return Refusal(
            status=503,
            code="no_worker",
            message="No worker can take this request now.",
            retry_after_s=_RETRY_AFTER_S,
        )
    late_ms = found.estimate.ttft_ms - preferences.ttft_limit_ms
    if late_ms > 0:
        return _overloaded(found.estimate, late_ms)
    return found


def _overloaded(estimate: Estimate, late_ms: float) -> Refusal:
    """Too much to do; `retry-after` is when what is too much will be done, by the same estimate."""
    wait_s = _LONGEST_RETRY_AFTER_S if late_ms == inf else min(ceil(late_ms / 1000), _LONGEST_RETRY_AFTER_S)
    if late_ms > estimate.queue_ms + estimate.room_ms:
        why = "Prefill and transfer of this prompt take too long"
    else:
        why = f"Too many requests wait for {'KV room' if estimate.room_ms > estimate.queue_ms else 'a prefill worker'}"
    return Refusal(
        status=429,
        code="overloaded",
        message=f"{why}: the first token is expected {late_ms / 1000:.1f} s too late.",
        retry_after_s=wait_s,
    )
