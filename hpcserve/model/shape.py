"""`config.json` -> `ModelShape`, what the rest of hpcserve needs to know about a model."""

import math
from itertools import accumulate, groupby

from hpcserve.model.config import Config
from hpcserve.model.context import read_context
from hpcserve.model.layer import Layer, fixed_bytes
from hpcserve.model.layout import KvLayout, read_layout
from hpcserve.model.parallel import stage_layers
from hpcserve.nouns import KvDtype, LayerGroup, ModelShape

__all__ = ["groups_in", "groups_of", "kept_bytes", "shape_of", "stage_bytes"]


def shape_of(
    config_text: str,
    *,
    name: str,
    source: str,
    weights_bytes: int | None,
    quantisation_text: str | None = None,
) -> ModelShape:
    """The shape of the model whose `config.json` reads `config_text`; `weights_bytes` where the weights are at hand.

    KV bytes are what vLLM allocates for one token with its KV dtype `auto`, over all layers and KV heads, windows not
    counted. `quantisation_text` is that of `hf_quant_config.json`, where there is one. Raises InputError naming every
    key that is missing, wrong or not known: nothing is guessed.
    """
    config = Config(config_text, source=source)
    layout = read_layout(config, quantisation_text=quantisation_text, quantisation_source="hf_quant_config.json")
    context = read_context(config)
    attention = [layer for layer in layout.layers if layer.kv_heads]
    if not attention and not config.mistakes:
        config.refuse("architectures", "no layer has attention", wanted="a model that keeps KV was wanted")
    config.finish()
    fewest = min(attention, key=lambda layer: layer.kv_heads)
    return ModelShape(
        name=name,
        architecture=layout.architecture,
        layers=len(layout.layers),
        attention_heads=layout.attention_heads,
        kv_heads=fewest.kv_heads,
        head_dim=fewest.key_dim,
        max_context_tokens=context,
        kv_dtype=layout.kv_dtype,
        kv_bytes_per_token=sum(layer.bytes_per_token(layout.kv_dtype) for layer in layout.layers),
        weights_bytes=weights_bytes,
        intermediate_size=layout.intermediate_size,
        groups=groups_of(layout, layout.kv_dtype),
        group_of_layer=_numbers_of(layout),
    )


def kept_bytes(shape: ModelShape, tokens: int, *, tensor_parallel: int = 1) -> int:
    """Bytes that a sequence of `tokens` keeps on one rank: windows cut off, states added, not rounded to blocks.

    Each group of layers is cut by its own heads: a KV head is copied where there are more ranks than heads, a latent
    vector is whole on every rank, a state is divided. With one rank it is all that the sequence keeps.
    """
    return sum(group.layers * _layer_bytes(group, tokens, tensor_parallel) for group in groups_in(shape))


def stage_bytes(shape: ModelShape, tokens: int, *, stages: int, tensor_parallel: int = 1) -> tuple[int, ...]:
    """The same by pipeline stage: what the layers of each keep on one of its ranks; together `kept_bytes`.

    Layers are cut as `stage_layers` says, which raises ValueError where a stage would have none. So is a shape that
    does not say which layer keeps what.
    """
    if stages == 1:
        return (kept_bytes(shape, tokens, tensor_parallel=tensor_parallel),)
    ends = list(accumulate(stage_layers(shape.layers, stages)))
    bounds = list(zip([0, *ends[:-1]], ends, strict=True))
    if len(shape.groups) > 1:
        if len(shape.group_of_layer) != shape.layers:
            raise ValueError(f"of {shape.name} nobody knows which layers keep what")
        kept = [_layer_bytes(group, tokens, tensor_parallel) for group in shape.groups]
        return tuple(sum(kept[number] for number in shape.group_of_layer[start:end]) for start, end in bounds)
    whole = kept_bytes(shape, tokens, tensor_parallel=tensor_parallel)
    return tuple(whole * end // shape.layers - whole * start // shape.layers for start, end in bounds)


def _layer_bytes(group: LayerGroup, tokens: int, ranks: int) -> int:
    """Of one of a group's layers, on one rank."""
    kept = min(tokens, group.window_tokens or tokens) * _rank_bytes(group, ranks)
    return kept + fixed_bytes(group.state, tensor_parallel=ranks)


def _rank_bytes(group: LayerGroup, ranks: int) -> int:
    """Of one token in one layer, on one rank."""
    return group.bytes_per_token // group.kv_heads * math.ceil(group.kv_heads / ranks) if group.kv_heads else 0


def groups_in(shape: ModelShape) -> tuple[LayerGroup, ...]:
    """What the layers keep; where the shape does not tell them apart, all of them as one that keeps every token."""
    return shape.groups or (
        LayerGroup(
            kind="full_attention",
            layers=1,
            kv_heads=shape.kv_heads,
            key_dim=shape.head_dim,
            value_dim=shape.head_dim,
            window_tokens=None,
            bytes_per_token=shape.kv_bytes_per_token,
            state_bytes_per_sequence=0,
        ),
    )


def groups_of(layout: KvLayout, dtype: KvDtype) -> tuple[LayerGroup, ...]:
    """Layers that keep the same, counted, in order of first appearance."""
    order = list(dict.fromkeys(layout.layers))
    numbers = sorted(order.index(layer) for layer in layout.layers)
    return tuple(_group(order[number], len(list(same)), dtype) for number, same in groupby(numbers))


def _numbers_of(layout: KvLayout) -> tuple[int, ...]:
    """Of each layer the number of its group, as `groups_of` has them."""
    order = list(dict.fromkeys(layout.layers))
    return tuple(order.index(layer) for layer in layout.layers)


def _group(layer: Layer, count: int, dtype: KvDtype) -> LayerGroup:
    return LayerGroup(
        kind=layer.kind,
        layers=count,
        kv_heads=layer.kv_heads,
        key_dim=layer.key_dim,
        value_dim=layer.value_dim,
        window_tokens=layer.window_tokens,
        bytes_per_token=layer.bytes_per_token(dtype),
        state_bytes_per_sequence=fixed_bytes(layer.state),
        state=layer.state,
    )
