"""A time that grows with a size: points, and straight lines between them."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite

__all__ = ["Curve", "rising"]


@dataclass(frozen=True, slots=True)
class Curve:
    """Milliseconds by size (tokens, sequences): never falls, above 0 from size 1 on.

    Straight between the points, on with the last slope behind them; before the first the straight line of the first
    two goes on, not below 0. Raises ValueError for fewer than two points, sizes that do not rise and times that fall.
    """

    points: tuple[tuple[int, float], ...]
    base_ms: float = field(init=False)
    """What the curve comes to at size 0."""
    _sizes: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """The points are checked once, so that no answer needs to look."""
        if len(self.points) < 2:  # noqa: PLR2004 - a line has two ends
            raise ValueError(f"a curve has two points at least, this has {len(self.points)}")
        if self.points[0][0] < 1 or any(one[0] >= other[0] for one, other in pairwise(self.points)):
            raise ValueError("the sizes of a curve begin at 1 or later, and rise")
        if not all(isfinite(ms) and ms > 0 for _, ms in self.points):
            raise ValueError("the times of a curve are finite and above 0")
        if any(one[1] > other[1] for one, other in pairwise(self.points)):
            raise ValueError("the times of a curve do not fall")
        (first, first_ms), (second, second_ms) = self.points[:2]
        intercept = first_ms - first * (second_ms - first_ms) / (second - first)
        object.__setattr__(self, "base_ms", max(0.0, intercept))
        object.__setattr__(self, "_sizes", tuple(size for size, _ in self.points))

    def at(self, size: int) -> float:
        """Milliseconds of `size`, which is above 0."""
        index = bisect_right(self._sizes, size)
        if index == 0:
            high, high_ms = self.points[0]
            return self.base_ms + (high_ms - self.base_ms) * (size / high)
        if index == len(self.points):
            index -= 1
        low, low_ms = self.points[index - 1]
        high, high_ms = self.points[index]
        reached = low_ms + (high_ms - low_ms) * ((size - low) / (high - low))
        return max(high_ms, reached) if size >= high else min(max(low_ms, reached), high_ms)


def rising(points: Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    """The points in order of size with times that never fall, as near to the given ones as such times can be.

    Neighbours that fall are put at their mean (isotonic regression by pooling adjacent violators). Several times of one
    size come to their mean.
    """
    by_size: dict[int, list[float]] = {}
    for size, ms in points:
        by_size.setdefault(size, []).append(ms)
    blocks: list[tuple[float, int, list[int]]] = []
    for size in sorted(by_size):
        times = by_size[size]
        blocks.append((sum(times), len(times), [size]))
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            total, count, sizes = blocks.pop()
            above = blocks.pop()
            blocks.append((above[0] + total, above[1] + count, [*above[2], *sizes]))
    return tuple((size, _mean(block)) for block in blocks for size in block[2])


def _mean(block: tuple[float, int, Sequence[int]]) -> float:
    return block[0] / block[1]
