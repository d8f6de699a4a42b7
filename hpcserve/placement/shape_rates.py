"""What rate a shape carries, by formulas: quick, for choosing what to simulate; no substitute for it."""

from collections.abc import Callable
from math import inf

from hpcserve.latency import Chunk, LatencyModel, quick_ttft_ms
from hpcserve.nouns import Slo, Workload
from hpcserve.simulate import Scheduling

__all__ = ["aggregated_rate", "decode_rate", "largest_batch", "longest_mixed_ms", "prefill_rate", "typical_prompt"]

_MS_PER_S = 1e3
_HALVINGS = 40
_ROUNDS = 60


def prefill_rate(model: LatencyModel, *, workload: Workload, slo: Slo, stages: int = 1) -> float:
    """Requests/s that a prefill worker takes in with a mean TTFT in its limit, transfers not counted; 0 where none.

    One of several equal stages takes the next prompt after its part of the time: with s stages s times as many prompts
    wait as long as for one server that takes 1 / s of it (DistServe, section 3.1).
    """

    def ttft_ms(rate: float) -> float:
        return quick_ttft_ms(
            model,
            input_tokens=(workload.input_tokens,),
            request_rate=rate,
            cached_prefix_tokens=workload.cached_prefix_tokens,
        )

    def fits(rate: float) -> bool:
        if stages == 1:
            return ttft_ms(rate) <= slo.ttft_ms
        wait_ms = ttft_ms(rate / stages) - ttft_ms(0.0)
        return ttft_ms(0.0) + wait_ms / stages <= slo.ttft_ms

    return _highest(fits, stages * _MS_PER_S / model.prefill_ms((typical_prompt(workload),)))


def decode_rate(model: LatencyModel, *, workload: Workload, slo: Slo, scheduling: Scheduling) -> float:
    """Requests/s that a decode worker carries with every step within the TPOT limit; 0 where none."""
    batch = largest_batch(model, workload=workload, limit_ms=slo.tpot_ms, scheduling=scheduling)
    if not batch:
        return 0.0
    step_ms = model.decode_ms(batch, batch * _context(workload))
    return batch * _MS_PER_S / (step_ms * max(1, workload.output_tokens - 1))


def largest_batch(model: LatencyModel, *, workload: Workload, limit_ms: float, scheduling: Scheduling) -> int:
    """The most sequences whose decode step stays within the limit, and that fit the worker; 0 where not even one."""
    context = _context(workload)
    low, high = 0, _most_sequences(model, workload, scheduling)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if model.decode_ms(middle, middle * context) <= limit_ms else (low, middle - 1)
    return low


def aggregated_rate(model: LatencyModel, *, workload: Workload, slo: Slo, scheduling: Scheduling) -> float:
    """Requests/s that an aggregated worker carries within both limits; 0 where none.

    Each request costs its prefill once and its share of the decode steps; prefill takes its part of the time, so that
    decode steps are longer by as much, and a prompt waits as for one server.
    """
    prefill_ms = model.prefill_ms((typical_prompt(workload),))
    context = _context(workload)
    most = _most_sequences(model, workload, scheduling)

    def fits(rate: float) -> bool:
        busy = rate * prefill_ms / _MS_PER_S
        if busy >= 1 or most < 1:
            return False
        batch = 1.0
        for _ in range(_ROUNDS):
            tpot_ms = model.decode_ms(max(1, round(batch)), round(max(1.0, batch) * context)) / (1 - busy)
            if tpot_ms > slo.tpot_ms:
                return False
            grown = rate * workload.output_tokens * tpot_ms / _MS_PER_S
            if grown > most:
                return False
            if abs(grown - batch) < 1e-3 * max(1.0, batch):
                break
            batch = grown
        wait_ms = busy * prefill_ms / (2 * (1 - busy))
        return wait_ms + prefill_ms + model.decode_ms(1, context) <= slo.ttft_ms

    return _highest(fits, _MS_PER_S / prefill_ms)


def longest_mixed_ms(model: LatencyModel, *, workload: Workload, slo: Slo, scheduling: Scheduling) -> float:
    """The longest step of an aggregated worker: as many prompt tokens as a step takes, beside a full decode batch."""
    batch = largest_batch(model, workload=workload, limit_ms=slo.tpot_ms, scheduling=scheduling)
    prompt = typical_prompt(workload)
    room = max(1, scheduling.token_budget - batch)
    whole, rest = divmod(room, prompt.new_tokens)
    chunks = [prompt] * whole
    if rest:
        chunks.append(Chunk(rest, prompt.before_tokens))
    return model.step_ms(chunks, batch, batch * _context(workload))


def typical_prompt(workload: Workload) -> Chunk:
    """What is computed of one typical request in one step: all but the cached prefix, and the last token always."""
    cached = min(workload.cached_prefix_tokens, workload.input_tokens - 1)
    return Chunk(workload.input_tokens - cached, cached)


def _most_sequences(model: LatencyModel, workload: Workload, scheduling: Scheduling) -> int:
    """The most that one step may have and whose KV fits the worker whole."""
    if model.kv_tokens is None:
        return scheduling.max_sequences
    return min(scheduling.max_sequences, model.kv_tokens // (workload.input_tokens + workload.output_tokens))


def _context(workload: Workload) -> int:
    """Of one sequence, half-way through its output."""
    return workload.input_tokens + workload.output_tokens // 2


def _highest(fits: Callable[[float], bool], most: float) -> float:
    """The highest rate up to `most` that fits, to a part in a million; 0 where hardly any does."""
    low, high = 0.0, most if most < inf else 1e9
    if not fits(high * 1e-6):
        return 0.0
    low = high * 1e-6
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
