"""What the parts share: headings, an SLO that nothing misses, a worker whose times can be worked out by hand."""

from hpcserve.latency import LinearLatency
from hpcserve.nouns import Slo

__all__ = ["EASY", "linear", "title"]

EASY = Slo(ttft_ms=1e9, tpot_ms=1e9)


def title(text: str) -> None:
    """A heading."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def linear(*, prefill_ms_per_token: float) -> LinearLatency:
    """A worker with that prefill and 10 ms a decode step."""
    return LinearLatency(
        prefill_base_ms=0.0,
        prefill_ms_per_token=prefill_ms_per_token,
        prefill_ms_per_token2=0.0,
        decode_base_ms=10.0,
        decode_ms_per_sequence=0.0,
        decode_ms_per_context_token=0.0,
        kv_tokens=None,
        source="made",
        kind="predicted",
    )
