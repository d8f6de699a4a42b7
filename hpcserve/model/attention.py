"""Layers with keys and values: heads, KV heads and head size, under the names that configs give them."""

from dataclasses import dataclass

from hpcserve.model.config import MOST_LAYERS, Config
from hpcserve.model.layer import Layer

__all__ = ["Heads", "heads_of", "layer_count", "plain_layers", "read_heads"]

# Names of one thing in several configuration classes of Transformers: Llama and most; GPT-2, Bloom; MPT, DBRX; ChatGLM.
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads")
_HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """Attention heads of a layer and the KV they share."""

    attention: int
    kv: int
    dim: int

    def layer(self) -> Layer:
        """A layer that keeps the K and V of every token."""
        return Layer(kind="full_attention", kv_heads=self.kv, key_dim=self.dim, value_dim=self.dim)

    def window(self, tokens: int) -> Layer:
        """A layer that looks back `tokens` tokens."""
        return Layer(
            kind="sliding_attention", kv_heads=self.kv, key_dim=self.dim, value_dim=self.dim, window_tokens=tokens
        )


def layer_count(config: Config) -> int:
    """Layers of the decoder."""
    return config.count(*_LAYERS, most=MOST_LAYERS)


def heads_of(config: Config) -> int:
    """Attention heads."""
    return config.count(*_HEADS)


def read_heads(config: Config, *, kv_heads: int | None = None) -> Heads:
    """Heads, KV heads (`kv_heads` where the family has its own rule; without a key, as many as heads) and head size.

    Mistakes are noted in `config`.
    """
    heads = heads_of(config)
    shared = config.count(*_KV_HEADS, default=heads) if kv_heads is None else kv_heads
    if heads % shared:
        config.refuse(
            "num_key_value_heads",
            f"`num_key_value_heads` is {shared}, of {heads} attention heads",
            wanted="a divisor of `num_attention_heads` was wanted",
        )
    return Heads(attention=heads, kv=shared, dim=_head_dim(config, heads))


def plain_layers(config: Config) -> tuple[Layer, ...]:
    """Every layer keeps everything: MHA, GQA and MQA."""
    return (read_heads(config).layer(),) * layer_count(config)


def _head_dim(config: Config, heads: int) -> int:
    """`head_dim` where it is given: models such as Qwen3 set it apart from hidden size / heads."""
    if config.get("head_dim", "kv_channels") is not None:
        return config.count("head_dim", "kv_channels")
    hidden = config.count(*_HIDDEN)
    if hidden % heads:
        config.refuse(
            "hidden_size",
            f"`hidden_size` {hidden} is no multiple of {heads} heads, and there is no `head_dim`",
            wanted="a head size was wanted",
        )
    return hidden // heads
