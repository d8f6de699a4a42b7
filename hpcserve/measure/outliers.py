"""Pairs that are slower than their like, and the node or link that explains them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hpcserve.nouns import Outlier

__all__ = ["SLOW", "Judged", "outliers_of"]

SLOW = 0.8
"""A pair below this part of what its like reach is slow: more than quiet runs of one pair differ by, and well above the
half that is left of a link which came up at half its width or rate."""

_MIN_FOR_QUARTILE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One pair as it is judged: its ends and links by name, its class, what it reached alone."""

    source: str
    reader: str
    ends: tuple[str, str]
    """The nodes."""
    kind: str
    links: tuple[str, ...]
    gb_per_s: float
    static_gb_per_s: float | None = None
    """What the site file says of its path; None where it leaves a rate unknown."""


def outliers_of(pairs: Sequence[Judged]) -> tuple[Outlier, ...]:
    """Nodes and links that explain the slow pairs, the one that explains most of them first.

    A pair is slow against the upper quartile of its class: on a small site half of the pairs may meet the bad part, so
    the median is no measure of what is right. A class that is slow as a whole is held against the site file instead,
    where another class reaches what the file says. A node or link explains slow pairs where every pair through it is
    slow. Where the pairs cannot tell several links apart, all are named as one.
    """
    usual = _usual(pairs)
    slow = {place for place, pair in enumerate(pairs) if pair.gb_per_s < SLOW * usual[pair.kind]}
    candidates = _candidates(pairs, slow)
    found = []
    left = set(slow)
    while left:
        # A node stands before its links: both directions of a bad cable are one finding.
        best = max(candidates, key=lambda one: (len(candidates[one] & left), one[0] == "node"), default=None)
        if best is None or not candidates[best] & left:
            break
        explained = candidates[best] & left
        kind, names = best[0], [best[1]]
        if kind == "link":
            names += [
                name
                for word, name in candidates
                if word == "link" and name != best[1] and candidates[word, name] == candidates[best]
            ]
        found.append(_outlier(pairs, sorted(candidates[best]), kind=kind, names=names, usual=usual))
        left -= explained
    for place in sorted(left):
        pair = pairs[place]
        name = f"{pair.source} to {pair.reader}"
        found.append(_outlier(pairs, [place], kind="link", names=[name], usual=usual, alone=True))
    return tuple(found)


def _usual(pairs: Iterable[Judged]) -> dict[str, float]:
    """What pairs of each class should reach, GB/s: what the better of them do, or what the site file says."""
    rates: dict[str, list[float]] = {}
    statics: dict[str, list[float]] = {}
    for pair in pairs:
        rates.setdefault(pair.kind, []).append(pair.gb_per_s)
        statics.setdefault(pair.kind, []).extend(() if pair.static_gb_per_s is None else (pair.static_gb_per_s,))
    better = {kind: _upper(values) for kind, values in rates.items()}
    promised = {kind: median(values) for kind, values in statics.items() if values}
    if not any(better[kind] >= SLOW * promised[kind] for kind in promised):
        return better
    return {
        kind: promised[kind] if kind in promised and rate < SLOW * promised[kind] else rate
        for kind, rate in better.items()
    }


def _upper(rates: Sequence[float]) -> float:
    """The upper quartile, of few the largest."""
    return sorted(rates)[(3 * len(rates)) // 4 if len(rates) >= _MIN_FOR_QUARTILE else -1]


def _candidates(pairs: Sequence[Judged], slow: Collection[int]) -> dict[tuple[str, str], set[int]]:
    """Nodes and links of which every pair is slow, with their pairs; one pair alone says nothing of a node."""
    through: dict[tuple[str, str], set[int]] = {}
    for place, pair in enumerate(pairs):
        for end in pair.ends:
            through.setdefault(("node", end), set()).add(place)
        for link in pair.links:
            through.setdefault(("link", link), set()).add(place)
    return {
        thing: places
        for thing, places in through.items()
        if places <= set(slow) and (thing[0] == "link" or len(places) > 1)
    }


def _outlier(
    pairs: Sequence[Judged],
    places: Sequence[int],
    *,
    kind: str,
    names: Sequence[str],
    usual: Mapping[str, float],
    alone: bool = False,
) -> Outlier:
    # Of its pairs, those of the class with the highest rate say most of it: elsewhere another link may bind as well.
    fastest = max({pairs[place].kind for place in places}, key=lambda one: usual[one])
    rates = [pairs[place].gb_per_s for place in places if pairs[place].kind == fastest]
    why = (
        f"{len(places)} of {len(places)} pairs through it are slow: "
        + ", ".join(f"{pairs[place].source} to {pairs[place].reader}" for place in places[:4])
        + (", ..." if len(places) > 4 else "")  # noqa: PLR2004 - as many as were named
    )
    if alone:
        why = "this pair is slow, and other pairs over each of its links are not"
    if len(names) > 1:
        why += "; the pairs that were measured cannot tell these links apart"
    return Outlier(
        kind="node" if kind == "node" else "link",
        name=" or ".join(names),
        gb_per_s=median(rates),
        expected_gb_per_s=usual[fastest],
        why=why,
    )
