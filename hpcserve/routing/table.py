"""What can be chosen from: made anew whenever a worker, a proof or a judgement of health changes, never per request."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from hpcserve.nouns import Endpoint, Role
from hpcserve.routing.pairing import mismatch

__all__ = ["Pair", "PrefillRow", "Table", "pair_of", "table_of"]

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
    """(decode worker, milliseconds for the KV of a typical request alone on the path)."""
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
    for prefill in prefills:
        partners = []
        for decode in decodes:
            pair = pair_of(prefill, decode)
            cost = transfer_ms.get((prefill.id, decode.id), float("inf"))
            if reason := mismatch(prefill, decode):
                mismatches.append(f"{prefill.id} > {decode.id}: {reason}")
            elif pair in proved:
                partners.append((decode, cost))
            elif pair not in failed:
                untried.append((cost, prefill, decode))
        if partners:
            nearest = min(cost for _, cost in partners)
            rows.append(PrefillRow(prefill=prefill, decodes=tuple(partners), nearest_ms=nearest))
    first = [endpoint for endpoint in usable if endpoint.role != Role.PREFILL]
    untried.sort(key=lambda entry: entry[0])
    return Table(
        models=tuple(sorted({endpoint.model for endpoint in listed} | set(models))),
        rows=tuple(rows),
        whole=(*first, *prefills),
        first_choice=len(first),
        mismatches=tuple(mismatches),
        untried=tuple((prefill, decode) for _, prefill, decode in untried),
    )
