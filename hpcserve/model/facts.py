"""What `hpcserve model show --json` says of a layout: plain values under the names that `docs/model.md` explains."""

from collections.abc import Mapping

from hpcserve.model.layer import fixed_bytes
from hpcserve.model.layout import KvLayout
from hpcserve.model.legal import tensor_parallel_pairs, tensor_parallel_sizes
from hpcserve.model.parallel import largest_stage_bytes, rank_bytes, stage_layers
from hpcserve.model.shape import groups_of

__all__ = ["facts_of"]

_STAGES = (2, 4, 8)


def facts_of(layout: KvLayout) -> Mapping[str, object]:
    """The facts of a layout by name; bytes of KV at the config's `dtype` unless the name says otherwise."""
    dtype = layout.dtype
    attention = [layer for layer in layout.layers if layer.kv_heads]
    endless = [layer for layer in attention if layer.window_tokens is None]
    windows = {layer.window_tokens for layer in attention if layer.window_tokens is not None}
    state = sum(fixed_bytes(layer.state) for layer in layout.layers)
    facts: dict[str, object] = {
        "architecture": layout.architecture,
        "model_type": layout.model_type,
        "dtype": dtype,
        "layers": len(layout.layers),
        "attention_heads": layout.attention_heads,
        "kv_bytes_per_token": rank_bytes(layout, dtype),
        "kv_bytes_per_token_full_layers": sum(layer.bytes_per_token(dtype) for layer in endless),
        "kv_bytes_per_token_fp8": rank_bytes(layout, "fp8"),
        "kv_cache_dtype": layout.kv_dtype,
        "kv_cache_bytes_per_token": rank_bytes(layout, layout.kv_dtype),
        "kv_bytes_per_token_per_rank_by_tp": {
            str(ranks): rank_bytes(layout, dtype, tensor_parallel=ranks) for ranks in tensor_parallel_sizes(layout)
        },
        "full_layers": len(endless),
        "sliding_layers": len(attention) - len(endless),
        "window": max(windows, default=None),
        "fixed_state_per_sequence": state > 0,
        "state_bytes_per_sequence": state,
        "tensor_parallel_sizes": list(tensor_parallel_sizes(layout)),
        "tensor_parallel_pairs": [list(pair) for pair in tensor_parallel_pairs(layout)],
        "max_context_tokens": layout.context_tokens,
        "groups": [group.model_dump(exclude={"state"}) for group in groups_of(layout, dtype)],
    }
    for stages in _STAGES:
        if stages <= len(layout.layers):
            facts[f"pp{stages}_layers"] = list(stage_layers(len(layout.layers), stages))
            facts[f"pp{stages}_worst_stage_bytes"] = largest_stage_bytes(layout, dtype, stages=stages)
    return facts
