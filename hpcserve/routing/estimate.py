"""What a request costs on a worker or a pair, in milliseconds: the formulas that every choice is made by.

Time to first token = queue + prefill of what is not cached + KV's way / path + wait for KV room. Cost = that + what the
request makes others wait. One prefill worker computes one prompt after another, pulls into one decode worker share its
link, a further sequence lengthens each step of those that decode beside it, a prefill holds up those that decode there.
"""

from collections.abc import Mapping
from typing import NamedTuple

from hpcserve.routing.load import Load, Typical

__all__ = [
    "DELAY_SHARE",
    "Demand",
    "Estimate",
    "queue_ms",
    "room_wait_ms",
    "split_estimate",
    "stream_held_up_ms",
    "uncached_tokens",
    "whole_estimate",
]


DELAY_SHARE = 0.1
"""What a millisecond counts by which a prefill holds up a stream that has begun, against one before a first token. With
1 prompts pile up where their beginning is, with 0 prefixes are given up for an even load. A tenth has the least mean
TTFT of these on Mooncake's conversation trace, and the least 99th percentile (benchmarks/router_quality.py)."""

_NOTHING_HELD: Mapping[str, int] = {}


class Demand(NamedTuple):
    """What one request asks for. `overlap`: prompt tokens whose KV a worker holds already, by worker id."""

    prompt_tokens: float
    answer_tokens: float = 0.0
    overlap: Mapping[str, int] = _NOTHING_HELD


class Estimate(NamedTuple):
    """Expected milliseconds of one request on one route."""

    queue_ms: float = 0.0
    """Prompts before it at the worker that prefills."""
    prefill_ms: float = 0.0
    transfer_ms: float = 0.0
    """KV on its path, beside the pulls that share the link, and what a handoff takes anyway."""
    room_ms: float = 0.0
    """Until enough others have ended to make room for its KV."""
    others_ms: float = 0.0
    """What the requests beside it wait for longer, all together."""

    @property
    def ttft_ms(self) -> float:
        """Expected time to first token."""
        return self.queue_ms + self.prefill_ms + self.transfer_ms + self.room_ms

    @property
    def cost_ms(self) -> float:
        """What is compared."""
        return self.queue_ms + self.prefill_ms + self.transfer_ms + self.room_ms + self.others_ms


def uncached_tokens(demand: Demand, worker_id: str, overlap_weight: float) -> float:
    """Prompt tokens that are not there yet; an engine computes one at least, to have something to answer from."""
    tokens = demand.prompt_tokens
    held = demand.overlap.get(worker_id, 0) if demand.overlap else 0
    return max(tokens - overlap_weight * held, min(tokens, 1.0)) if held else tokens


def queue_ms(load: Load, typical: Typical, *, prefills: bool) -> float:
    """How long the prompts before a new one take. `prefills`: legs that are not counted in tokens are prefills."""
    waiting = load.prefill_tokens
    if waiting is None:
        return load.in_flight * typical.prefill_ms if prefills else 0.0
    return waiting * typical.prefill_ms_per_token


def room_wait_ms(load: Load, tokens: float, typical: Typical) -> float:
    """How long until there is room for the KV of `tokens`; 0 where there is, or where the room is not known.

    The KV that is held is given back within about the time of one answer, evenly, so a part of it takes that part of
    the time (Little's law, with what is held for the number in the system).
    """
    room = load.kv_room_tokens
    if room is None:
        return 0.0
    over = load.kv_tokens + tokens - room
    if over <= 0:
        return 0.0
    return over / max(load.kv_tokens, tokens) * typical.decode_step_ms * typical.answer_tokens


def stream_held_up_ms(demand: Demand, typical: Typical, *, workers: int) -> float:
    """What the prompts that are still to come hold up a stream on one of so many prefill workers, by `DELAY_SHARE`."""
    return DELAY_SHARE * typical.prefill_share(workers) * demand.answer_tokens * typical.decode_step_ms


def split_estimate(
    demand: Demand,
    typical: Typical,
    *,
    prefill: tuple[str, Load],
    decode: tuple[str, Load],
    path_ms: float,
    overlap_weight: float,
) -> Estimate:
    """Prefill here, decode there. `path_ms`: the KV of a typical prompt, alone on the path between them."""
    (prefill_id, here), (decode_id, there) = prefill, decode
    computed = moved = demand.prompt_tokens
    if demand.overlap:
        computed = uncached_tokens(demand, prefill_id, overlap_weight)
        moved = uncached_tokens(demand, decode_id, overlap_weight)
    prefill_ms = computed * typical.prefill_ms / typical.prompt_tokens
    return Estimate(
        queue_ms(here, typical, prefills=True),
        prefill_ms,
        path_ms * (moved / typical.prompt_tokens) * (there.transfers + there.coming + 1) + typical.handoff_ms,
        room_wait_ms(there, demand.prompt_tokens + demand.answer_tokens, typical),
        there.serving * typical.decode_step_ms + DELAY_SHARE * here.decoding * prefill_ms,
    )


def whole_estimate(
    demand: Demand, typical: Typical, *, worker: tuple[str, Load], overlap_weight: float, held_up_ms: float = 0.0
) -> Estimate:
    """Both phases here: the prefill holds up everybody who decodes here, which counts by `DELAY_SHARE`.

    `held_up_ms`: see `stream_held_up_ms`; 0 where the worker computes no prompts for others.
    """
    load = worker[1]
    prefill_ms = uncached_tokens(demand, worker[0], overlap_weight) * typical.prefill_ms_per_token
    return Estimate(
        queue_ms=queue_ms(load, typical, prefills=False),
        prefill_ms=prefill_ms,
        room_ms=room_wait_ms(load, demand.prompt_tokens + demand.answer_tokens, typical),
        others_ms=load.serving * typical.decode_step_ms + DELAY_SHARE * load.decoding * prefill_ms + held_up_ms,
    )
