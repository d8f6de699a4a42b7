"""Figures as a latency file has them."""

from collections.abc import Iterable

from hpcserve.nouns import CurvePoint

__all__ = ["points_of", "rounded"]

_DIGITS = 6
"""Significant digits of a coefficient or a time: far below what measuring gives."""


def rounded(value: float) -> float:
    """The figure with the digits that are written down."""
    return float(f"{value:.{_DIGITS}g}")


def points_of(points: Iterable[tuple[int, float]]) -> tuple[CurvePoint, ...]:
    """Points of a curve, (size, milliseconds), as they are written down."""
    return tuple(CurvePoint(at=size, ms=rounded(ms)) for size, ms in points)
