"""`CurvedLatency`: measured points where a straight line would not do."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from hpcserve.latency.curve import Curve
from hpcserve.latency.step import Chunk, Kind, attention_pairs

__all__ = ["CurvedLatency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvedLatency:
    """Curves over a step's new tokens and over its sequences, and straight terms for what they look back at.

    prefill = curve(sum(new)) + per_token2 * sum(new * (before + new / 2)).
    decode = curve(sequences) + per_context_token * context_tokens.
    A mixed step pays both and, as it is one step, only the larger of the two curves' bases. Raises ValueError for
    coefficients that are negative or not finite.
    """

    prefill: Curve
    prefill_ms_per_token2: float
    decode: Curve
    decode_ms_per_context_token: float
    kv_tokens: int | None
    source: str
    kind: Kind

    def __post_init__(self) -> None:
        """The curves have checked themselves."""
        slopes = (self.prefill_ms_per_token2, self.decode_ms_per_context_token)
        if not all(isfinite(one) and one >= 0 for one in slopes):
            raise ValueError(f"coefficients are finite and not negative, these are {slopes}")
        if self.kv_tokens is not None and self.kv_tokens <= 0:
            raise ValueError(f"a worker with room for {self.kv_tokens} tokens holds no KV")

    def prefill_ms(self, chunks: Sequence[Chunk]) -> float:
        """Milliseconds of one step that computes these chunks and nothing else; 0 where they have no new tokens."""
        tokens = sum(chunk.new_tokens for chunk in chunks)
        if tokens <= 0:
            return 0.0
        return self.prefill.at(tokens) + self.prefill_ms_per_token2 * attention_pairs(chunks)

    def decode_ms(self, sequences: int, context_tokens: int) -> float:
        """Milliseconds of one step that gives a token to each of `sequences`; 0 where there are none."""
        if sequences <= 0:
            return 0.0
        return self.decode.at(sequences) + self.decode_ms_per_context_token * context_tokens

    def step_ms(self, chunks: Sequence[Chunk], sequences: int, context_tokens: int) -> float:
        """Milliseconds of a step that does both; the step of one phase where the other has no work."""
        prefill, decode = self.prefill_ms(chunks), self.decode_ms(sequences, context_tokens)
        if prefill <= 0 or decode <= 0:
            return max(prefill, decode)
        shared = min(self.prefill.base_ms, self.decode.base_ms)
        return max(prefill, decode, prefill + decode - shared)
