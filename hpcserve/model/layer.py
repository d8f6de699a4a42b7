"""One layer, and what it keeps of a sequence: bytes that grow with its tokens, and a state that does not."""

import math
from dataclasses import dataclass

from hpcserve.nouns import KvDtype, LayerKind, LayerState

__all__ = ["Layer", "fixed_bytes", "row_bytes"]

_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1}


def row_bytes(elements: int, dtype: KvDtype) -> int:
    """Bytes of one row of the KV cache.

    NVFP4 packs two elements into a byte and adds one byte of scale for 16 (vLLM, `nvfp4_kv_cache_full_dim`).
    """
    return elements // 2 + elements // 16 if dtype == "nvfp4" else elements * _BYTES[dtype]


def fixed_bytes(state: LayerState | None, *, tensor_parallel: int = 1) -> int:
    """Bytes of a state on one rank, 0 without one; groups are copied where the ranks do not divide them.

    The shapes are those of vLLM's `MambaStateShapeCalculator` (vllm/model_executor/layers/mamba/mamba_utils.py).
    """
    if state is None:
        return 0
    groups = state.groups if state.groups % tensor_parallel == 0 else tensor_parallel
    channels = state.channels + groups * state.channels_per_group
    recurrent = state.recurrent_elements * state.recurrent_element_bytes
    convolution = math.ceil(channels / tensor_parallel) * state.taps * state.element_bytes
    return math.ceil(recurrent / tensor_parallel) + convolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: heads of KV, the size of a key and of a value, how far back it looks."""

    kind: LayerKind
    kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    """0 for latent attention, which keeps one vector for both."""
    window_tokens: int | None = None
    state: LayerState | None = None

    def bytes_per_token(self, dtype: KvDtype, *, tensor_parallel: int = 1) -> int:
        """Bytes of one token on one rank. A rank holds at least one KV head: copies where there are more ranks."""
        heads = math.ceil(self.kv_heads / tensor_parallel)
        return heads * (row_bytes(self.key_dim, dtype) + row_bytes(self.value_dim, dtype))

    def bytes_of(self, tokens: int, dtype: KvDtype, *, tensor_parallel: int = 1) -> int:
        """Bytes of a sequence of `tokens` on one rank, its state included."""
        kept = tokens if self.window_tokens is None else min(tokens, self.window_tokens)
        grows = kept * self.bytes_per_token(dtype, tensor_parallel=tensor_parallel)
        return grows + fixed_bytes(self.state, tensor_parallel=tensor_parallel)
