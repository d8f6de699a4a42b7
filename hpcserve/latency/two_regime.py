"""`TwoRegimeLatency`: one set of coefficients for small decode batches, another for large ones."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpcserve.latency.linear import LinearLatency
from hpcserve.latency.step import Chunk, Kind

__all__ = ["TwoRegimeLatency"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoRegimeLatency:
    """`small` below `large_from` sequences of decode, `large` from there on; prefill is that of `small`.

    Two fits that were made apart need not meet: where the large one would fall below what the largest small batch
    takes with the same context, that time stands.
    """

    small: LinearLatency
    large: LinearLatency
    large_from: int

    def __post_init__(self) -> None:
        """A boundary that leaves nothing below it is a mistake; so are two workers in one."""
        if self.large_from <= 1:
            raise ValueError(f"no batch is below {self.large_from} sequences")
        if self.small.kv_tokens != self.large.kv_tokens:
            raise ValueError("both regimes are of one worker, which has one KV capacity")

    @property
    def source(self) -> str:
        """One line: where the figures come from."""
        return self.small.source

    @property
    def kind(self) -> Kind:
        """Whether the figures were measured on such a worker."""
        return self.small.kind

    @property
    def kv_tokens(self) -> int | None:
        """KV that the worker holds, in tokens; None where that is unknown."""
        return self.small.kv_tokens

    def prefill_ms(self, chunks: Sequence[Chunk]) -> float:
        """Milliseconds of one step that computes these chunks and nothing else."""
        return self.small.prefill_ms(chunks)

    def decode_ms(self, sequences: int, context_tokens: int) -> float:
        """Milliseconds of one step that gives a token to each of `sequences`."""
        return self.step_ms((), sequences, context_tokens)

    def step_ms(self, chunks: Sequence[Chunk], sequences: int, context_tokens: int) -> float:
        """Milliseconds of a step that does both."""
        if sequences < self.large_from:
            return self.small.step_ms(chunks, sequences, context_tokens)
        return max(
            self.large.step_ms(chunks, sequences, context_tokens),
            self.small.step_ms(chunks, self.large_from - 1, context_tokens),
        )
