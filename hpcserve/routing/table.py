"""What can be chosen from: made anew whenever a worker, a proof or a judgement of health changes, never per request."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from hpcserve.nouns import Endpoint, Role
from hpcserve.routing.pairing import Facts, facts_of, mismatch

__all__ = ["MOST_LOOKED_AT", "Pair", "PrefillRow", "Table", "pair_of", "table_of"]

MOST_LOOKED_AT = 16
"""Workers of one phase that one choice compares; of more a part, another one each turn. The best of 16 that change is
hardly worse than the best of all (one of two drawn does nearly as well: Mitzenmacher, 2001), and time has an end."""

Pair = tuple[str, str, str, str]
"""(prefill id, its generation, decode id, its generation)."""


def pair_of(prefill: Endpoint, decode: Endpoint) -> Pair:
    """The name of a pair: with another generation it is another pair."""
    return (prefill.id, prefill.generation, decode.id, decode.generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillRow:
    """One prefill worker and the decode workers that may pull from it, each with the predicted transfer."""

    prefill: Endpoint
    decodes: tuple[tuple[Endpoint, float], ...]
    """(decode worker, milliseconds for the KV of a typical request alone on the path); nearest first."""
    nearest_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One immutable snapshot of what can be chosen."""

    models: tuple[str, ...]
    """Names that are served, dead or alive, sorted."""
    rows: tuple[PrefillRow, ...]
    whole: tuple[Endpoint, ...]
    """Workers that may serve both phases: aggregated and decode workers first, then prefill workers."""
    first_choice: int
    """How many of `whole` stand in its first part."""
    mismatches: tuple[str, ...]
    """Pairs that are never tried, each with the fact on which the two differ."""
    untried: tuple[tuple[Endpoint, Endpoint], ...]
    """Pairs that may hand over, whose proof is still to come; nearest first."""
    row_of: Mapping[str, PrefillRow] = field(default_factory=dict)
    """The rows by their prefill worker's id."""
    place_of: Mapping[str, int] = field(default_factory=dict)
    """Where each of `whole` stands in it, by its id."""


def table_of(
    endpoints: Iterable[Endpoint],
    *,
    transfer_ms: Mapping[tuple[str, str], float],
    proved: AbstractSet[Pair],
    failed: AbstractSet[Pair] = frozenset(),
    skipped: AbstractSet[str] = frozenset(),
    models: Iterable[str] = (),
) -> Table:
    """The table of these endpoints.

    `transfer_ms` by (prefill id, decode id), infinite where it is missing; `proved` and `failed` pairs; `skipped`:
    ids of workers that do not answer; `models`: names that are served even while no endpoint is there.
    """
    listed = tuple(endpoints)
    usable = [endpoint for endpoint in listed if not endpoint.draining and endpoint.id not in skipped]
    prefills = [endpoint for endpoint in usable if endpoint.role == Role.PREFILL]
    decodes = [endpoint for endpoint in usable if endpoint.role == Role.DECODE]
    rows, mismatches, untried = [], [], []
    facts = [(decode, facts_of(decode)) for decode in decodes]
    fits: dict[tuple[Facts | None, Facts | None], bool] = {}  # few kinds, many pairs
    for prefill in prefills:
        partners = []
        own = facts_of(prefill)
        for decode, theirs in facts:
            fit = fits.get((own, theirs))
            if fit is None:
                fit = fits[own, theirs] = not mismatch(prefill, decode)
            if not fit:
                mismatches.append(f"{prefill.id} > {decode.id}: {mismatch(prefill, decode)}")
                continue
            pair = pair_of(prefill, decode)
            cost = transfer_ms.get((prefill.id, decode.id), float("inf"))
            if pair in proved:
                partners.append((decode, cost))
            elif pair not in failed:
                untried.append((cost, prefill, decode))
        if partners:
            partners.sort(key=lambda partner: partner[1])
            rows.append(PrefillRow(prefill=prefill, decodes=tuple(partners), nearest_ms=partners[0][1]))
    first = [endpoint for endpoint in usable if endpoint.role != Role.PREFILL]
    whole = (*first, *prefills)
    untried.sort(key=lambda entry: entry[0])
    return Table(
        models=tuple(sorted({endpoint.model for endpoint in listed} | set(models))),
        rows=tuple(rows),
        whole=whole,
        first_choice=len(first),
        mismatches=tuple(mismatches),
        untried=tuple((prefill, decode) for _, prefill, decode in untried),
        row_of={row.prefill.id: row for row in rows},
        place_of={endpoint.id: place for place, endpoint in enumerate(whole)},
    )
