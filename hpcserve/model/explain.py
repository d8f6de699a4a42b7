"""The arithmetic of a layout in words, one line a step."""

from collections.abc import Iterator

from hpcserve.model.layout import KvLayout
from hpcserve.model.parallel import rank_bytes
from hpcserve.model.shape import groups_of
from hpcserve.nouns import KvDtype, LayerGroup

__all__ = ["explain"]

_ELEMENT = {"bfloat16": "2 B", "float16": "2 B", "float32": "4 B", "fp8": "1 B", "nvfp4": "9/16 B"}


def explain(layout: KvLayout) -> tuple[str, ...]:
    """Lines that lead from heads and layers to the bytes of one token, and what windows and states make of them."""
    return tuple(_lines(layout))


def _lines(layout: KvLayout) -> Iterator[str]:
    dtype = layout.dtype
    groups = groups_of(layout, dtype)
    yield f"KV of one token in {dtype}, as vLLM allocates it:"
    for group in groups:
        yield f"  {_step(group, dtype)}"
    yield f"  together {rank_bytes(layout, dtype):,} B"
    endless = sum(group.layers * group.bytes_per_token for group in groups if group.window_tokens is None)
    for group in groups:
        if group.window_tokens is not None:
            most = group.layers * group.bytes_per_token * group.window_tokens
            yield (
                f"The {group.layers} {_name(group)} layers keep {group.window_tokens} tokens at most, {most:,} B a "
                f"sequence; past that a token adds {endless:,} B"
            )
    state = sum(group.layers * group.state_bytes_per_sequence for group in groups)
    if state:
        yield f"A sequence keeps a state of {state:,} B besides, whatever its length; a transfer must carry it too"
    if layout.kv_dtype != dtype:
        yield (
            f"The checkpoint's quantisation keeps KV in {layout.kv_dtype}: vLLM allocates "
            f"{rank_bytes(layout, layout.kv_dtype):,} B a token unless --kv-cache-dtype says otherwise"
        )


def _step(group: LayerGroup, dtype: KvDtype) -> str:
    count = f"{group.layers} {_name(group)} layers"
    if not group.kv_heads:
        state = f", a state of {group.state_bytes_per_sequence:,} B each" if group.state_bytes_per_sequence else ""
        return f"{count}: no KV{state}"
    total = group.layers * group.bytes_per_token
    if group.value_dim == 0:
        return f"{count} x {group.key_dim} (one vector for K and V) x {_ELEMENT[dtype]} = {total:,} B"
    size = f"2 x {group.key_dim}" if group.key_dim == group.value_dim else f"({group.key_dim} + {group.value_dim})"
    return f"{count} x {group.kv_heads} KV heads x {size} x {_ELEMENT[dtype]} = {total:,} B"


def _name(group: LayerGroup) -> str:
    return group.kind.replace("_", "-")
