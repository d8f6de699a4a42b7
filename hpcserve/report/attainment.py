"""The arithmetic of attainment: which requests are good, and how sure their share is."""

import math

from hpcserve.nouns import Sample, Slo

__all__ = ["is_good", "share_text", "wilson_interval"]

_Z_95 = 1.959963984540054
"""Two-sided 95 % quantile of the standard normal distribution."""


def is_good(sample: Sample, slo: Slo) -> bool:
    """Whether a request met both limits. One that failed did not."""
    return not sample.error and slo.is_met(ttft_ms=sample.ttft_ms, tpot_ms=sample.tpot_ms)


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
