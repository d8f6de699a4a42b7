"""What transfers really take, held against what was predicted for them: the correction of each path."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import inf

__all__ = ["PathTimes"]

_FEWEST = 4
"""Transfers that a mean is taken over; fewer wait for the next report."""
_WEIGHT = 0.3
"""Of one report: a path that has changed is seen after three or four, a single odd one is not."""
_MOST = 20.0
"""A path that takes 20 times longer than predicted, or a twentieth, is taken for that; beyond lies no path's doing."""


@dataclass(slots=True, kw_only=True)
class _Sums:
    """What one decode worker was to pull, and has pulled, since its last mean."""

    predicted_ms: dict[str, float] = field(default_factory=dict)
    handoffs: int = 0
    transfers: int = 0
    seconds: float = 0.0


class PathTimes:
    """Ratios of reported to predicted time, by (prefill id, decode id).

    A decode worker reports the sum over all its pulls, one for each of its ranks, some seconds late: so means are
    compared, and where several prefill workers took part each path gets its share of what is seen.
    """

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], float] = {}
        self._sums: dict[str, _Sums] = {}
        self._slowest_ms: dict[str, float | None] = {}
        """What `slowest_ms` found, until a ratio changes: it is asked for with each handoff."""

    def handed(self, prefill: str, decode: str, *, predicted_ms: float) -> None:
        """A handoff was begun that should take so long beside those that share the link."""
        if 0 < predicted_ms < inf:
            sums = self._sums.get(decode)
            if sums is None:
                sums = self._sums[decode] = _Sums()
            sums.predicted_ms[prefill] = sums.predicted_ms.get(prefill, 0.0) + predicted_ms
            sums.handoffs += 1

    def reported(self, decode: str, *, transfers: int, seconds: float) -> bool:
        """The worker's counters grew by this much since its last report; whether a correction has changed."""
        sums = self._sums.get(decode)
        if sums is None:
            return False
        sums.transfers += max(transfers, 0)
        sums.seconds += max(seconds, 0.0)
        if min(sums.handoffs, sums.transfers) < _FEWEST:
            return False
        total_ms = sum(sums.predicted_ms.values())
        measured = sums.seconds * 1000 / sums.transfers / (total_ms / sums.handoffs)
        ratio = min(max(measured, 1 / _MOST), _MOST)
        for prefill, ms in sums.predicted_ms.items():
            weight, pair = _WEIGHT * ms / total_ms, (prefill, decode)
            before = self._ratios.get(pair, 1.0)
            self._ratios[pair] = before + weight * (ratio - before)
        del self._sums[decode]
        self._slowest_ms.clear()
        return True

    def started_anew(self, decode: str) -> None:
        """The worker's counters begin at nothing again; what its paths were stays."""
        self._sums.pop(decode, None)

    def keep_only(self, workers: AbstractSet[str]) -> None:
        """Forget the paths of all other workers."""
        for pair in [*self._ratios]:
            if not workers >= {*pair}:
                del self._ratios[pair]
        for worker in self._sums.keys() - workers:
            del self._sums[worker]
        self._slowest_ms.clear()

    def correction(self, prefill: str, decode: str) -> float:
        """By what a predicted time is to be multiplied: 1 where nothing is known."""
        return self._ratios.get((prefill, decode), 1.0)

    def slowest_ms(self, decode: str, predicted_ms: Mapping[tuple[str, str], float]) -> float | None:
        """The longest corrected time of the paths to one worker; None where none of them has been reported.

        `predicted_ms` is the same every time.
        """
        if decode not in self._slowest_ms:
            found = [
                predicted_ms[pair] * ratio
                for pair, ratio in self._ratios.items()
                if pair[1] == decode and predicted_ms.get(pair, 0.0) > 0
            ]
            self._slowest_ms[decode] = max(found, default=None)
        return self._slowest_ms[decode]

    def corrections(self) -> dict[tuple[str, str], float]:
        """All that are known."""
        return dict(self._ratios)
