"""Relative least squares with coefficients that are not negative, for the few columns that a latency model has."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import fsum, sqrt

__all__ = ["Observation", "Solution", "determined", "residuals", "solve"]

_INDEPENDENT = 0.05
"""A column counts as told apart from others where they explain all but this share of its length: below it, a few per
cent of noise in the times would turn into a coefficient of any size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A time, and what it is a sum of: one figure per column. `weight` counts how many measurements stand behind it."""

    row: tuple[float, ...]
    ms: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """One coefficient per column; 0 for the columns that were not used or would have been negative."""

    coefficients: tuple[float, ...]
    squares: float
    """Weighted sum of the squared relative errors."""


def determined(seen: Sequence[Observation], columns: Sequence[int]) -> tuple[int, ...]:
    """The columns, in the order given, that observations of any weight tell apart from those before them."""
    basis: list[list[float]] = []
    found: list[int] = []
    for column in columns:
        rest = _unit([one.row[column] / one.ms for one in seen])
        if rest is None:
            continue
        for one in basis:
            share = _dot(rest, one)
            rest = [value - share * along for value, along in zip(rest, one, strict=True)]
        length = sqrt(_dot(rest, rest))
        if length >= _INDEPENDENT:
            basis.append([value / length for value in rest])
            found.append(column)
    return tuple(found)


def solve(seen: Sequence[Observation], columns: Sequence[int]) -> Solution:
    """The coefficients that make the sum of weight * (predicted / measured - 1)^2 smallest, none of them negative.

    With so few columns every choice of those that are above 0 is tried: the best that fits the sign is the answer, and
    it is exact. `columns` are told apart by the observations (`determined`); ValueError where no choice fits.
    """
    best: Solution | None = None
    for count in range(1, len(columns) + 1):
        for chosen in combinations(columns, count):
            values = _solve(seen, chosen)
            if values is None or min(values) < 0:
                continue
            by_column = dict(zip(chosen, values, strict=True))
            coefficients = tuple(by_column.get(index, 0.0) for index in range(len(seen[0].row)))
            squares = fsum(
                one.weight * error**2 for one, error in zip(seen, residuals(seen, coefficients), strict=True)
            )
            if best is None or squares < best.squares:
                best = Solution(coefficients=coefficients, squares=squares)
    if best is None:
        raise ValueError("no coefficients of the right sign fit")
    return best


def residuals(seen: Sequence[Observation], coefficients: Sequence[float]) -> list[float]:
    """Predicted / measured - 1 of each observation."""
    return [_dot(one.row, coefficients) / one.ms - 1 for one in seen]


def _scaled(seen: Sequence[Observation], column: int) -> list[float]:
    """The column as the relative problem sees it."""
    return [sqrt(one.weight) * one.row[column] / one.ms for one in seen]


def _unit(values: Sequence[float]) -> list[float] | None:
    length = sqrt(_dot(values, values))
    return [value / length for value in values] if length > 0 else None


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return fsum(left * right for left, right in zip(one, other, strict=True))


def _solve(seen: Sequence[Observation], chosen: Sequence[int]) -> list[float] | None:
    """Least squares by orthogonal columns (modified Gram-Schmidt); None where the columns are one another's sum."""
    wanted = [sqrt(one.weight) for one in seen]
    columns = [_scaled(seen, column) for column in chosen]
    upper: list[list[float]] = [[0.0] * len(chosen) for _ in chosen]
    along: list[float] = []
    for index, column in enumerate(columns):
        length = sqrt(_dot(column, column))
        if length <= 0:
            return None
        upper[index][index] = length
        columns[index] = [value / length for value in column]
        for later in range(index + 1, len(columns)):
            share = _dot(columns[index], columns[later])
            upper[index][later] = share
            columns[later] = [value - share * unit for value, unit in zip(columns[later], columns[index], strict=True)]
        along.append(_dot(columns[index], wanted))
    values = [0.0] * len(chosen)
    for index in reversed(range(len(chosen))):
        rest = fsum(upper[index][later] * values[later] for later in range(index + 1, len(chosen)))
        values[index] = (along[index] - rest) / upper[index][index]
    return values
