"""A small world whose step times are known: it serves requests, and gives the Runs that would be measured."""

from collections.abc import Sequence
from typing import Any

from hpcserve.latency import Chunk, LatencyModel
from hpcserve.nouns import Load, Run, Sample, Transfers
from tests import synthetic

__all__ = ["alone", "rate"]


def alone(
    model: LatencyModel, *, input_tokens: int, requests: int = 8, transfer_ms: float = 100.0, placement: str = "near",
    sweep: str = "demo", output_tokens: int = 16,
) -> Run:  # fmt: skip
    starts = [10.0 * index for index in range(requests)]
    samples = serve(
        model, starts=starts, input_tokens=input_tokens, output_tokens=output_tokens, transfer_ms=transfer_ms
    )
    base = synthetic.alone_run(placement=placement, each_ms=[transfer_ms] * requests)
    return _with(
        base,
        samples,
        transfer_ms,
        sweep,
        kind="alone",
        request_rate=None,
        input_tokens=input_tokens,
        cached_prefix_tokens=0,
        output_tokens=output_tokens,
    )


def rate(
    model: LatencyModel, *, input_tokens: int, starts_s: Sequence[float], transfer_ms: float = 100.0,
    cached: int = 0, placement: str = "near", sweep: str = "demo", output_tokens: int = 16, number: float = 1.0,
) -> Run:  # fmt: skip
    samples = serve(
        model, starts=starts_s, input_tokens=input_tokens, output_tokens=output_tokens, transfer_ms=transfer_ms,
        cached=cached,
    )  # fmt: skip
    base = synthetic.rate_run(placement=placement, rate=number, ttfts_ms=[1.0] * len(samples))
    return _with(
        base,
        samples,
        transfer_ms,
        sweep,
        kind="rate",
        request_rate=number,
        input_tokens=input_tokens,
        cached_prefix_tokens=cached,
        output_tokens=output_tokens,
    )


def _with(base: Run, samples: tuple[Sample, ...], transfer_ms: float, sweep: str, **load: Any) -> Run:
    offered = Load.model_validate({**base.load.model_dump(), "requests": len(samples), **load})
    moved = Transfers(
        count=len(samples), bytes=1000 * len(samples), failed=0, seconds=transfer_ms * len(samples) / 1e3,
        each_ms=(transfer_ms,) * len(samples) if offered.kind == "alone" else (),
    )  # fmt: skip
    return base.model_copy(update={"load": offered, "samples": samples, "transfers": moved, "sweep": sweep})


def serve(
    model: LatencyModel, *, starts: Sequence[float], input_tokens: int, output_tokens: int, transfer_ms: float,
    cached: int = 0,
) -> tuple[Sample, ...]:  # fmt: skip
    """One prefill worker in order of arrival, a transfer each, one decode worker in steps of all that are there."""
    free_s, ready = 0.0, []
    for start_s in starts:
        begin_s = max(free_s, start_s)
        free_s = begin_s + model.prefill_ms([Chunk(input_tokens - cached, cached)]) / 1e3
        ready.append(free_s + transfer_ms / 1e3)
    made = [0] * len(starts)
    first, last = [0.0] * len(starts), [0.0] * len(starts)
    now_s = 0.0
    while min(made) < output_tokens:
        batch = [index for index, at_s in enumerate(ready) if at_s <= now_s and made[index] < output_tokens]
        if not batch:
            now_s = min(at_s for index, at_s in enumerate(ready) if made[index] == 0)
            continue
        now_s += model.decode_ms(len(batch), sum(input_tokens + made[index] for index in batch)) / 1e3
        for index in batch:
            first[index] = first[index] if made[index] else now_s
            made[index], last[index] = made[index] + 1, now_s
    return tuple(
        Sample(
            start_s=start_s,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            ttft_ms=(first[index] - start_s) * 1e3,
            tpot_ms=(last[index] - first[index]) * 1e3 / (output_tokens - 1),
        )
        for index, start_s in enumerate(starts)
    )
