"""What a rank and a stage of a model holds, and what fits on a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from hpcserve.model.layout import KvLayout
from hpcserve.nouns import KvDtype

__all__ = [
    "Capacity",
    "capacity",
    "largest_stage_bytes",
    "rank_bytes",
    "sequence_bytes",
    "stage_layers",
]


def rank_bytes(layout: KvLayout, dtype: KvDtype, *, tensor_parallel: int = 1) -> int:
    """KV bytes of one token on one rank, all layers and windows as if they kept it: what vLLM allocates."""
    return sum(layer.bytes_per_token(dtype, tensor_parallel=tensor_parallel) for layer in layout.layers)


def sequence_bytes(layout: KvLayout, dtype: KvDtype, *, tokens: int, tensor_parallel: int = 1) -> int:
    """Bytes on one rank that a sequence of `tokens` needs: no more than its window in a layer that has one, and states.

    Not rounded to blocks.
    """
    return sum(layer.bytes_of(tokens, dtype, tensor_parallel=tensor_parallel) for layer in layout.layers)


def stage_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each pipeline stage, by vLLM's rule (`get_pp_indices`).

    What is left over goes to the stages before the last, one each from the back. Raises ValueError where a stage would
    have no layer.
    """
    if not 1 <= stages <= layers:
        raise ValueError(f"{layers} layers cannot be cut into {stages} stages")
    least, left = divmod(layers, stages)
    return tuple(least + (stages - 1 - left <= stage < stages - 1) for stage in range(stages))


def largest_stage_bytes(layout: KvLayout, dtype: KvDtype, *, stages: int, tensor_parallel: int = 1) -> int:
    """KV bytes of one token on a rank of the stage that keeps most."""
    return _largest([layer.bytes_per_token(dtype, tensor_parallel=tensor_parallel) for layer in layout.layers], stages)


def _largest(sizes: Sequence[int], stages: int) -> int:
    """The sum of the stage that has most, of the sizes of all layers."""
    ends = list(accumulate(stage_layers(len(sizes), stages)))
    return max(sum(sizes[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """How much KV fits on one GPU of a worker. Before activations, which only the engine can measure: at most this."""

    kv_bytes: int
    tokens: int
    """Of KV as vLLM allocates it, in whole blocks."""
    sequences: int | None
    """Of the length that was asked for, by what each needs; None where none was asked for."""


def capacity(
    layout: KvLayout,
    dtype: KvDtype,
    *,
    memory_bytes: int,
    utilisation: float,
    weights_bytes: int,
    tensor_parallel: int = 1,
    stages: int = 1,
    block_tokens: int = 16,
    reserved_bytes: int = 0,
    context_tokens: int | None = None,
) -> Capacity:
    """What is left for KV on a GPU of `memory_bytes` that the engine may use to `utilisation` (0 to 1).

    Weights are taken as cut evenly into ranks and, by layers, into stages; `reserved_bytes` is for activations and what
    else is known to be needed. 16 tokens a block is vLLM's usual size. All zero where the weights alone do not fit.
    """
    layers = len(layout.layers)
    weights = weights_bytes * max(stage_layers(layers, stages)) // layers // tensor_parallel
    free = max(0, int(memory_bytes * utilisation) - weights - reserved_bytes)
    per_token = largest_stage_bytes(layout, dtype, stages=stages, tensor_parallel=tensor_parallel)
    blocks = free // (per_token * block_tokens) if per_token else 0
    sequences = None
    if context_tokens is not None:
        kept = [layer.bytes_of(context_tokens, dtype, tensor_parallel=tensor_parallel) for layer in layout.layers]
        each = _largest(kept, stages)
        sequences = free // each if each else 0
    return Capacity(kv_bytes=free, tokens=blocks * block_tokens, sequences=sequences)
