"""`LinearLatency`: the plain model, linear in its six coefficients."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from hpcserve.latency.step import Chunk, Kind

__all__ = ["LinearLatency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLatency:
    """A base per step, plus so much per token; raises ValueError for coefficients that no worker can have.

    prefill = base + per_token * sum(new) + per_token2 * sum(new * (before + new / 2)); the last term is attention:
    each new token looks at all before it, so chunks of a prompt cost together what the whole prompt costs.
    decode = base + per_sequence * sequences + per_context_token * context_tokens.
    A mixed step pays both parts and the larger base once.
    The form is that of the simulator published with DistServe (Zhong et al., OSDI 2024).
    """

    prefill_base_ms: float
    prefill_ms_per_token: float
    prefill_ms_per_token2: float
    decode_base_ms: float
    decode_ms_per_sequence: float
    decode_ms_per_context_token: float
    kv_tokens: int | None
    source: str
    kind: Kind

    def __post_init__(self) -> None:
        """Negative times and free work are refused here, so that no answer needs to look."""
        coefficients = (
            self.prefill_base_ms,
            self.prefill_ms_per_token,
            self.prefill_ms_per_token2,
            self.decode_base_ms,
            self.decode_ms_per_sequence,
            self.decode_ms_per_context_token,
        )
        if not all(isfinite(one) and one >= 0 for one in coefficients):
            raise ValueError(f"coefficients are finite and not negative, these are {coefficients}")
        if self.prefill_base_ms + self.prefill_ms_per_token + self.prefill_ms_per_token2 <= 0:
            raise ValueError("prefill would take no time at all")
        if self.decode_base_ms + self.decode_ms_per_sequence <= 0:
            raise ValueError("a decode step of a short context would take no time at all")
        if self.kv_tokens is not None and self.kv_tokens <= 0:
            raise ValueError(f"a worker with room for {self.kv_tokens} tokens holds no KV")

    def prefill_ms(self, chunks: Sequence[Chunk]) -> float:
        """Milliseconds of one step that computes these chunks and nothing else; 0 where they have no new tokens."""
        varying = self._prefill_varying_ms(chunks)
        return 0.0 if varying is None else self.prefill_base_ms + varying

    def decode_ms(self, sequences: int, context_tokens: int) -> float:
        """Milliseconds of one step that gives a token to each of `sequences`; 0 where there are none."""
        if sequences <= 0:
            return 0.0
        return self.decode_base_ms + self._decode_varying_ms(sequences, context_tokens)

    def step_ms(self, chunks: Sequence[Chunk], sequences: int, context_tokens: int) -> float:
        """Milliseconds of a step that does both; the step of one phase where the other has no work."""
        varying = self._prefill_varying_ms(chunks)
        if varying is None:
            return self.decode_ms(sequences, context_tokens)
        if sequences <= 0:
            return self.prefill_base_ms + varying
        base = max(self.prefill_base_ms, self.decode_base_ms)
        return base + (varying + self._decode_varying_ms(sequences, context_tokens))

    def _prefill_varying_ms(self, chunks: Sequence[Chunk]) -> float | None:
        """The prefill's time beyond the base; None where nothing is computed."""
        tokens = 0
        half_pairs = 0
        for chunk in chunks:
            new = chunk.new_tokens
            tokens += new
            half_pairs += new * (2 * chunk.before_tokens + new)
        if tokens <= 0:
            return None
        return self.prefill_ms_per_token * tokens + self.prefill_ms_per_token2 * (half_pairs / 2)

    def _decode_varying_ms(self, sequences: int, context_tokens: int) -> float:
        return self.decode_ms_per_sequence * sequences + self.decode_ms_per_context_token * context_tokens
