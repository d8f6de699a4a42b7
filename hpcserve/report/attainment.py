"""The arithmetic of goodput: which requests are good, how sure that is, where the target is first missed."""

import itertools
import math
from collections.abc import Iterable

from hpcserve.nouns import Goodput, Sample, Slo

__all__ = ["goodput_of", "is_good", "share_text", "wilson_interval"]

_Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the standard normal distribution."""


def is_good(sample: Sample, slo: Slo) -> bool:
    """Whether a request met both limits. A failed one or one without a token did not; one token has no TPOT to miss."""
    if sample.error or sample.ttft_ms is None:
        return False
    return sample.ttft_ms <= slo.ttft_ms and (sample.tpot_ms is None or sample.tpot_ms <= slo.tpot_ms)


def wilson_interval(good: int, total: int) -> tuple[float, float]:
    """The 95 % score interval of a share `good / total` (Wilson, JASA 22, 1927); (0, 1) for a total of 0."""
    if total == 0:
        return 0.0, 1.0
    share, spread = good / total, _Z_95**2 / total
    middle = (share + spread / 2) / (1 + spread)
    half = _Z_95 / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return (0.0 if good == 0 else max(0.0, middle - half)), (1.0 if good == total else min(1.0, middle + half))


def share_text(share: float) -> str:
    """A share in percent with three digits, so that 89.6 % is not shown as the 90 % that it missed."""
    return f"{share * 100:.3g}%"


def goodput_of(points: Iterable[tuple[float, float]], *, target: float) -> Goodput:
    """Goodput of (offered rate, attainment) points: where attainment first falls below `target`, linear between points.

    What comes back at higher rates after the first crossing does not count: nobody can run there on purpose.
    """
    ordered = sorted(points)
    if not ordered:
        return Goodput(bound="unknown", request_rate=None)
    if ordered[0][1] < target:
        return Goodput(bound="below", request_rate=ordered[0][0])
    for (low, reached), (high, missed) in itertools.pairwise(ordered):
        if missed < target:
            part = (reached - target) / (reached - missed)
            return Goodput(bound="crossing", request_rate=low + (high - low) * part)
    return Goodput(bound="above", request_rate=ordered[-1][0])
