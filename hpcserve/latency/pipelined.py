"""`PipelinedLatency`: a worker of several equal stages, from the times of one."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hpcserve.latency.step import Chunk, Kind, LatencyModel

__all__ = ["PipelinedLatency"]


@dataclass(frozen=True, slots=True)
class PipelinedLatency:
    """A worker of several equal stages; `stage` is one of them. A decode batch goes in as many equal parts.

    What one stage sends to the next, and the gaps of a pipeline, are not in it unless they are in `stage`.
    """

    stage: LatencyModel
    stages: int

    @property
    def source(self) -> str:
        """Of the stage."""
        return self.stage.source

    @property
    def kind(self) -> Kind:
        """Of the stage."""
        return self.stage.kind

    @property
    def kv_tokens(self) -> int | None:
        """Of the worker."""
        return self.stage.kv_tokens

    def prefill_ms(self, chunks: Sequence[Chunk]) -> float:
        """Through all stages."""
        return self.stages * self.stage.prefill_ms(chunks)

    def decode_ms(self, sequences: int, context_tokens: int) -> float:
        """Each part goes through all stages, one behind the other; of fewer sequences than stages each is a part."""
        parts = min(max(sequences, 1), self.stages)
        return self.stages * self.stage.decode_ms(math.ceil(sequences / parts), math.ceil(context_tokens / parts))

    def step_ms(self, chunks: Sequence[Chunk], sequences: int, context_tokens: int) -> float:
        """Prefill goes first and decode after it, as in DistServe and in the vLLM of its time."""
        return (self.prefill_ms(chunks) if chunks else 0.0) + self.decode_ms(sequences, context_tokens)
