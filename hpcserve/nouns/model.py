"""`ModelShape`: the arithmetic of one model."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Noun, PositiveInt, Text

__all__ = ["ModelShape"]


class ModelShape(Noun):
    """What placement and prediction need to know about a model, from its Hugging Face `config.json`."""

    name: Text
    architecture: Text
    layers: PositiveInt
    attention_heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    max_context_tokens: PositiveInt
    kv_dtype: Literal["bfloat16", "float16", "float32", "fp8"]
    kv_bytes_per_token: PositiveInt
    """Bytes of KV of one token over all layers and all KV heads, as vLLM allocates it."""
    weights_bytes: Annotated[int, Field(gt=0)] | None
    """Bytes of the weight files; None where only the config is at hand."""
