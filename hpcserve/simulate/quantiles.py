"""`Quantiles`: percentiles of a stream of any length in bounded memory, each within 0.1 %."""

import math

from hpcserve.nouns import Percentiles

__all__ = ["Quantiles"]

_ACCURACY = 0.001
"""Largest relative error of a percentile."""
_LEAST_MS = 1e-6
"""Smaller values, a millionth of a millisecond, count as this one."""
_LOG_STEP = math.log((1 + _ACCURACY) / (1 - _ACCURACY))


class Quantiles:
    """Counts in buckets that grow geometrically, so that each bucket's middle is within 0.1 % of all that is in it.

    The sketch of Masson, Rim and Lee, DDSketch, VLDB 2019, without merging of buckets: from a nanosecond to a year
    there are 19,000, however many values come. The mean is exact.
    """

    __slots__ = ("_buckets", "count", "total")

    def __init__(self) -> None:
        self._buckets: dict[int, int] = {}
        self.count = 0
        self.total = 0.0

    def add(self, value: float) -> None:
        """Take one value, 0 or more."""
        bucket = math.ceil(math.log(max(value, _LEAST_MS)) / _LOG_STEP)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.total += value

    @property
    def mean(self) -> float | None:
        """Of all values; None where there is none."""
        return self.total / self.count if self.count else None

    def at(self, share: float) -> float | None:
        """The smallest value that `share` of all values do not exceed (nearest rank); None where there is none."""
        if not self.count:
            return None
        rank = max(1, math.ceil(share * self.count))
        reached = 0
        for bucket in sorted(self._buckets):
            reached += self._buckets[bucket]
            if reached >= rank:
                return 2.0 * math.exp(bucket * _LOG_STEP) / (1.0 + math.exp(_LOG_STEP))
        raise AssertionError("the buckets hold all that was counted")

    def percentiles(self) -> Percentiles:
        """The usual three."""
        return Percentiles(p50=self.at(0.5), p90=self.at(0.9), p99=self.at(0.99))
