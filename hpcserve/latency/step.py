"""What one engine step computes, and what every latency model answers about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["Chunk", "Kind", "LatencyModel", "attention_pairs"]

Kind = Literal["measured", "predicted"]
"""`measured`: fitted from runs of this very kind of worker. `predicted`: everything else."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of one prompt that is computed in one step. Both counts are at least 0."""

    new_tokens: int
    """Tokens of the prompt that this step computes."""
    before_tokens: int
    """Tokens of the same prompt whose KV is there already: earlier chunks, or a cached prefix."""


class LatencyModel(Protocol):
    """Times of one worker (all its ranks) in milliseconds.

    Every answer is above 0 for any work, 0 for none, never falls when an argument grows, and is the same each time.
    """

    @property
    def source(self) -> str:
        """One line: where the figures come from."""

    @property
    def kind(self) -> Kind:
        """Whether the figures were measured on such a worker."""

    @property
    def kv_tokens(self) -> int | None:
        """KV that one worker holds, in tokens; None where that is unknown."""

    def prefill_ms(self, chunks: Sequence[Chunk]) -> float:
        """Milliseconds of one step that computes these chunks and nothing else."""

    def decode_ms(self, sequences: int, context_tokens: int) -> float:
        """Milliseconds of one step that gives each of `sequences` a token; `context_tokens` sums their contexts."""

    def step_ms(self, chunks: Sequence[Chunk], sequences: int, context_tokens: int) -> float:
        """Milliseconds of a mixed step (chunked prefill); the two above where the other part is empty."""


def attention_pairs(chunks: Sequence[Chunk]) -> float:
    """How often a new token looks at another: new * (before + new / 2), summed over the chunks."""
    return sum(chunk.new_tokens * (2 * chunk.before_tokens + chunk.new_tokens) for chunk in chunks) / 2
