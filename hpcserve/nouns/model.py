"""`ModelShape`: the arithmetic of one model."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Noun, PositiveInt, Text

__all__ = ["KvDtype", "LayerGroup", "LayerKind", "LayerState", "ModelShape"]

KvDtype = Literal["bfloat16", "float16", "float32", "fp8", "nvfp4"]
"""Types of the elements of a KV cache."""

LayerKind = Literal[
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "latent_attention",
    "linear_attention",
    "state_space",
    "no_attention",
]
"""What a layer keeps of a sequence: KV of all tokens, of a window, of a chunk; one latent vector a token; a state of
fixed size (two kinds); or nothing."""

Bytes = Annotated[int, Field(ge=0)]


class LayerState(Noun):
    """What a layer without attention keeps of a sequence, however long it is: a recurrent and a convolution state."""

    recurrent_elements: Bytes
    recurrent_element_bytes: PositiveInt
    channels: Bytes
    """Of the convolution, without those of the groups."""
    groups: Bytes
    channels_per_group: Bytes
    taps: Bytes
    """Of the convolution, less the newest: the kernel's size - 1."""
    element_bytes: PositiveInt
    heads: PositiveInt
    """Which tensor parallelism divides."""


class LayerGroup(Noun):
    """Layers of a model that keep the same; not necessarily neighbours."""

    kind: LayerKind
    layers: PositiveInt
    kv_heads: Bytes
    key_dim: Bytes
    value_dim: Bytes
    """0 where one vector serves as key and value."""
    window_tokens: PositiveInt | None
    bytes_per_token: Bytes
    """Of one of these layers, all KV heads."""
    state_bytes_per_sequence: Bytes
    """Of one of these layers, whatever the sequence's length; on all ranks together, nothing copied."""
    state: LayerState | None = None
    """What those bytes are made of; None without a state."""


class ModelShape(Noun):
    """What placement and prediction need to know about a model, from its Hugging Face `config.json`."""

    name: Text
    architecture: Text
    layers: PositiveInt
    attention_heads: PositiveInt
    kv_heads: PositiveInt
    """Of an attention layer, the fewest where layers differ; 1 for latent attention: its vector is not divided."""
    head_dim: PositiveInt
    max_context_tokens: PositiveInt
    kv_dtype: KvDtype
    kv_bytes_per_token: PositiveInt
    """Bytes of KV of one token over all layers and all KV heads, as vLLM allocates it in `kv_dtype`."""
    weights_bytes: Annotated[int, Field(gt=0)] | None
    """Bytes of the weight files; None where only the config is at hand."""
    intermediate_size: PositiveInt | None = None
    """Of a dense MLP, which tensor parallelism divides too; None for experts, or where the config does not say."""
    groups: tuple[LayerGroup, ...] = ()
    """What the layers keep, in order of first appearance; empty: all layers keep all tokens."""
    group_of_layer: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Of each layer the number of its group; empty where there are no groups to tell apart."""
