"""Who was in the service together: from when requests came, had their first token, and ended."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from hpcserve.nouns import Sample

__all__ = ["Company", "Stay", "company", "stays_of", "undisturbed"]

_MS_PER_S = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """One answered request in the service; seconds since the start of the run."""

    sample: Sample
    ttft_ms: float
    tpot_ms: float
    came_s: float
    first_s: float
    ended_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """What decoded together, on average over a request's own decode: sequences, itself too, and their context."""

    sequences: float
    context_tokens: float


def stays_of(samples: Sequence[Sample]) -> list[Stay]:
    """The answered requests with two tokens or more, in the order in which they came."""
    stays = []
    for sample in samples:
        if sample.error or sample.ttft_ms is None or sample.tpot_ms is None:
            continue
        first_s = sample.start_s + sample.ttft_ms / _MS_PER_S
        stays.append(
            Stay(
                sample=sample,
                ttft_ms=sample.ttft_ms,
                tpot_ms=sample.tpot_ms,
                came_s=sample.start_s,
                first_s=first_s,
                ended_s=first_s + sample.tpot_ms * (sample.output_tokens - 1) / _MS_PER_S,
            )
        )
    return sorted(stays, key=lambda stay: stay.came_s)


def undisturbed(stays: Sequence[Stay]) -> list[Stay]:
    """The requests that were alone in the service until their first token.

    Who still decodes counts: a handed over request would wait for the decode worker's step to end.
    """
    found = []
    others_end_s = float("-inf")
    for index, stay in enumerate(stays):
        next_s = stays[index + 1].came_s if index + 1 < len(stays) else float("inf")
        if others_end_s <= stay.came_s and stay.first_s <= next_s:
            found.append(stay)
        others_end_s = max(others_end_s, stay.ended_s)
    return found


def company(stays: Sequence[Stay], *, interrupted: bool) -> list[tuple[Stay, Company]]:
    """Each request with who decoded beside it.

    `interrupted`: prefill of others stops decode (one worker does both phases); who met any is left out.
    """
    came = [stay.came_s for stay in stays]
    longest_s = max((stay.ended_s - stay.came_s for stay in stays), default=0.0)
    found = []
    for stay in stays:
        length_s = stay.ended_s - stay.first_s
        near = stays[bisect_left(came, stay.first_s - longest_s) : bisect_left(came, stay.ended_s)]
        if length_s <= 0 or (interrupted and any(_meets(stay, one) for one in near if one is not stay)):
            continue
        sequences = context = 0.0
        for one in near:
            share = max(0.0, min(stay.ended_s, one.ended_s) - max(stay.first_s, one.first_s)) / length_s
            sequences += share
            context += share * (one.sample.input_tokens + one.sample.output_tokens / 2)
        found.append((stay, Company(sequences=sequences, context_tokens=context)))
    return found


def _meets(stay: Stay, other: Stay) -> bool:
    """Whether the other's prefill falls into this one's decode."""
    return other.came_s < stay.ended_s and other.first_s > stay.first_s
