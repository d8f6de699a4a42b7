"""The recommendation in words: which placement, and when to leave disaggregation alone."""

from collections.abc import Sequence

from hpcserve.nouns import PlacementResult, RateResult, Slo
from hpcserve.report.attainment import share_text

__all__ = ["recommendation"]

_ALONE_TOLERANCE = 0.2
"""A measured transfer alone further than this from the prediction says that the site file's rates are wrong."""


def recommendation(placements: Sequence[PlacementResult], *, slo: Slo) -> tuple[str, ...]:
    """Sentences, the most important first. Placements of different sizes are compared per GPU."""
    measured = [placement for placement in placements if placement.rates]
    if not measured:
        return ("No run at a rate is valid, so nothing can be recommended.",)
    best = max(measured, key=_standing)
    sentences = [_praise(best, slo)]
    sentences += [_compare(best, other) for other in measured if other is not best]
    baseline = [placement for placement in measured if placement.mode == "aggregated"]
    disaggregated = [placement for placement in measured if placement.mode == "disaggregated"]
    if disaggregated and not baseline:
        sentences.append("No aggregated baseline was measured: this does not say whether disaggregation pays at all.")
    elif disaggregated:
        sentences.append(_against_baseline(max(disaggregated, key=_standing), max(baseline, key=_standing)))
    sentences += [warning for placement in placements for warning in _warn_of_rates(placement)]
    if any(placement.simulated for placement in measured):
        sentences.append("Placements marked (simulated) were not measured; their figures come from a model of time.")
    return tuple(sentences)


def _standing(placement: PlacementResult) -> tuple[float, float]:
    """Orders placements: goodput per GPU (a bound counts as its rate), then good requests/s per GPU at the top rate."""
    rate = placement.goodput.request_rate
    known = 0.0 if rate is None or placement.goodput.bound == "below" else rate
    return known / placement.gpus, placement.rates[-1].good_per_s / placement.gpus


def _praise(best: PlacementResult, slo: Slo) -> str:
    limits = f"{slo.ttft_ms:g} ms to first token and {slo.tpot_ms:g} ms per token"
    target = f"{share_text(slo.attainment)} of requests within {limits}"
    if best.goodput.bound == "below":
        return f"No placement reaches {target} at any rate that was offered; {best.name} comes nearest."
    rate = f"{best.goodput.request_rate:.3g} requests/s"
    if best.goodput.bound == "above":
        return f"Use {best.name}: {target} even at {rate}, the highest rate that was offered."
    return f"Use {best.name}: {target} up to {rate}."


def _compare(best: PlacementResult, other: PlacementResult) -> str:
    """One sentence on the best against another, at the highest rate both were measured at."""
    pair = _top_common(best, other)
    if pair is None:
        return f"{best.name} and {other.name} have no valid rate in common."
    ours, theirs = pair
    shares = f"{share_text(ours.attainment)} against {share_text(theirs.attainment)} of requests good"
    figures = f"{shares} at {ours.request_rate:g} requests/s{_size_note(best, other)}"
    if _apart(ours, theirs):
        return f"{best.name} against {other.name}: {figures}."
    count = f"{ours.requests} and {theirs.requests} requests"
    return f"{best.name} and {other.name} are not told apart by {count}: {figures}."


def _against_baseline(disaggregated: PlacementResult, baseline: PlacementResult) -> str:
    size = _size_note(disaggregated, baseline)
    if _standing(baseline) >= _standing(disaggregated):
        return f"Leave disaggregation alone here: {baseline.name} is at least as good{size}."
    pair = _top_common(disaggregated, baseline)
    if pair is None or not _better(*pair):
        return f"Disaggregation is not shown to be better than {baseline.name}{size}: serve aggregated."
    return f"Disaggregation pays here: {disaggregated.name} is better than {baseline.name}{size}."


def _top_common(one: PlacementResult, other: PlacementResult) -> tuple[RateResult, RateResult] | None:
    theirs = {result.request_rate: result for result in other.rates}
    pairs = [(result, theirs[result.request_rate]) for result in one.rates if result.request_rate in theirs]
    return pairs[-1] if pairs else None


def _better(one: RateResult, other: RateResult) -> bool:
    """Whether the first share's 95 % interval is wholly above the other's."""
    return one.attainment_low > other.attainment_high


def _apart(one: RateResult, other: RateResult) -> bool:
    """Whether the 95 % intervals of the two shares do not touch."""
    return _better(one, other) or _better(other, one)


def _size_note(one: PlacementResult, other: PlacementResult) -> str:
    if one.gpus == other.gpus:
        return ""
    return f" ({one.gpus} GPU{'s' * (one.gpus > 1)} against {other.gpus}; goodput is compared per GPU)"


def _warn_of_rates(placement: PlacementResult) -> list[str]:
    return [
        f"{placement.name}: a transfer alone takes {result.ratio:.2f} times the prediction: measure the fabric's rates."
        for result in placement.transfers
        if result.load == "alone" and result.ratio is not None and abs(result.ratio - 1) > _ALONE_TOLERANCE
    ]
