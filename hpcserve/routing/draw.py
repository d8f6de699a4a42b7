"""Which of several candidates are looked at, and which is taken: the least cost, or one drawn by its cost."""

from collections.abc import Sequence
from math import exp, inf
from typing import TypeVar

from hpcserve.routing.table import MOST_LOOKED_AT

__all__ = ["draw", "taken", "window"]

T = TypeVar("T")


def window(items: Sequence[T], turn: int, *, kept: int = 0) -> Sequence[T]:
    """All of them; of many the first `kept` and a part that moves on with `turn`.

    So a choice costs no more among a thousand workers than among 16; over some turns everybody is looked at.
    """
    count = len(items)
    if count <= MOST_LOOKED_AT:
        return items
    part = MOST_LOOKED_AT - kept
    start = kept + turn * part % (count - kept)
    taken = items[start : start + part]
    missing = part - len(taken)
    return (*items[:kept], *taken, *items[kept : kept + missing])


def taken(costs: Sequence[float], turn: int, temperature: float = 0.0, step: float = 0.0) -> int:
    """The place of the least cost, where equals take turns; with a temperature one that is drawn by its cost.

    `step`: turns times this, without their whole part, are the chances that are drawn by.
    """
    if temperature:
        return draw(costs, temperature=temperature, chance=turn * step % 1.0)
    least = min(costs)
    place = costs.index(least)
    equals = costs.count(least)
    if equals > 1:
        for _ in range(turn % equals):
            place = costs.index(least, place + 1)
    return place


def draw(costs: Sequence[float], *, temperature: float, chance: float) -> int:
    """A place drawn with weight exp(-(cost / least - 1) / temperature); `chance` is from 0 to 1."""
    least = min(costs)
    if least == inf:
        return int(chance * len(costs)) % len(costs)
    unit = temperature * max(least, _LEAST_UNIT_MS)
    weights = [exp((least - cost) / unit) for cost in costs]
    left = chance * sum(weights)
    for place, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return place
    return costs.index(least)


_LEAST_UNIT_MS = 1.0
"""Costs near nothing differ by nothing: below this a share of the cost is no measure."""
