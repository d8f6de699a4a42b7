"""The choice: the prefill worker first, then one of its decode workers, so that it costs P + D steps, not P x D."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hpcserve.nouns import Endpoint
from hpcserve.routing.load import Load, Typical
from hpcserve.routing.table import PrefillRow, Table

__all__ = ["Refusal", "Route", "choose"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Who serves. `prefill` is None where `decode` serves both phases; `reason` then says why."""

    prefill: Endpoint | None
    decode: Endpoint
    transfer_ms: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why nobody serves, as an OpenAI-style error."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after_s: int | None = None


_IDLE = Load()


def choose(
    table: Table,
    loads: Mapping[str, Load],
    typical: Typical,
    *,
    model: str | None,
    whole: str = "",
    avoid: AbstractSet[str] = frozenset(),
    turn: int = 0,
) -> Route | Refusal:
    """The least expected cost in milliseconds, or why there is nobody.

    `model` None: whatever is served. `whole`: why this request must not be split; empty: split it where a pair is
    proved. `avoid`: ids of workers that just failed this request. `turn`: where a search starts: equals take turns.

    Prefill: its queue x a typical prefill + the transfer to its nearest partner. Decode: its requests x one decode
    step + the transfer x (transfers into it + 1), as pulls into one worker share its link.
    """
    if model is not None and model not in table.models:
        return Refusal(
            status=404, code="model_not_found", message=f"The model `{model}` does not exist.", param="model"
        )
    if not whole:
        row = _best_row(table.rows, loads, typical, model=model, avoid=avoid, turn=turn)
        if row is not None:
            chosen = _best_decode(row, loads, typical, avoid=avoid, turn=turn)
            if chosen is not None:
                return Route(prefill=row.prefill, decode=chosen[0], transfer_ms=chosen[1])
    worker = _whole_worker(table, loads, model=model, avoid=avoid, turn=turn)
    if worker is not None:
        return Route(prefill=None, decode=worker, reason=whole or "no_pair")
    return Refusal(
        status=503,
        code="no_worker",
        message="No worker can take this request now.",
        retry_after_s=_RETRY_AFTER_S,
    )


_RETRY_AFTER_S = 2
"""A worker that is back shows within two looks at its endpoint record, one a second."""


def _whole_worker(
    table: Table, loads: Mapping[str, Load], *, model: str | None, avoid: AbstractSet[str], turn: int
) -> Endpoint | None:
    """A decode or aggregated worker; a prefill worker where there is none.

    While no pair is proved, prefill workers have nothing else to do: then the one with the fewest requests of all.
    """
    split = table.first_choice
    first = _least_loaded(table.whole[:split], loads, model=model, avoid=avoid, turn=turn)
    if first is not None and table.rows:
        return first
    other = _least_loaded(table.whole[split:], loads, model=model, avoid=avoid, turn=turn)
    if first is None or other is None:
        return first or other
    return other if loads.get(other.id, _IDLE).in_flight < loads.get(first.id, _IDLE).in_flight else first


def _best_row(
    rows: Sequence[PrefillRow],
    loads: Mapping[str, Load],
    typical: Typical,
    *,
    model: str | None,
    avoid: AbstractSet[str],
    turn: int,
) -> PrefillRow | None:
    best, best_cost = None, float("inf")
    count = len(rows)
    for step in range(count):
        row = rows[(turn + step) % count]
        prefill = row.prefill
        if (model is not None and prefill.model != model) or prefill.id in avoid:
            continue
        if avoid and all(decode.id in avoid for decode, _ in row.decodes):
            continue
        cost = loads.get(prefill.id, _IDLE).in_flight * typical.prefill_ms + row.nearest_ms
        if best is None or cost < best_cost:
            best, best_cost = row, cost
    return best


def _best_decode(
    row: PrefillRow, loads: Mapping[str, Load], typical: Typical, *, avoid: AbstractSet[str], turn: int
) -> tuple[Endpoint, float] | None:
    best, best_cost = None, float("inf")
    count = len(row.decodes)
    for step in range(count):
        entry = row.decodes[(turn + step) % count]
        decode, transfer_ms = entry
        if decode.id in avoid:
            continue
        load = loads.get(decode.id, _IDLE)
        cost = load.in_flight * typical.decode_step_ms + transfer_ms * (load.transfers + 1)
        if best is None or cost < best_cost:
            best, best_cost = entry, cost
    return best


def _least_loaded(
    workers: Sequence[Endpoint], loads: Mapping[str, Load], *, model: str | None, avoid: AbstractSet[str], turn: int
) -> Endpoint | None:
    best, best_load = None, 0
    count = len(workers)
    for step in range(count):
        worker = workers[(turn + step) % count]
        if (model is not None and worker.model != model) or worker.id in avoid:
            continue
        load = loads.get(worker.id, _IDLE).in_flight
        if best is None or load < best_load:
            best, best_load = worker, load
    return best
