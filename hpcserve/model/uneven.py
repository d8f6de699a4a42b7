"""Families whose KV heads or head sizes follow their own rule, or differ from layer to layer."""

from typing import TypeGuard

from hpcserve.model.attention import heads_of, layer_count, read_heads
from hpcserve.model.config import Config
from hpcserve.model.layer import Layer
from hpcserve.model.windows import layer_kinds

__all__ = [
    "GEMMA4_KEYS",
    "LATENT_KEYS",
    "attn_config_layers",
    "block_layers",
    "chatglm_layers",
    "falcon_layers",
    "gemma4_layers",
    "latent_layers",
    "multi_query_layers",
]

GEMMA4_KEYS = frozenset(
    {"global_head_dim", "num_global_key_value_heads", "attention_k_eq_v", "sliding_window", "layer_types"}
)
LATENT_KEYS = frozenset({"kv_lora_rank", "qk_rope_head_dim", "v_head_dim"})


def latent_layers(config: Config) -> tuple[Layer, ...]:
    """Multi-head latent attention (DeepSeek-V2, V3, R1, Kimi-K2): one vector a token, the same on every rank.

    Its size is `kv_lora_rank` + `qk_rope_head_dim` (vLLM's MLA head size).
    """
    layer = Layer(
        kind="latent_attention",
        kv_heads=1,
        key_dim=config.count("kv_lora_rank") + config.count("qk_rope_head_dim"),
    )
    return (layer,) * layer_count(config)


def falcon_layers(config: Config) -> tuple[Layer, ...]:
    """Falcon: the old decoder has one KV head unless `multi_query` is false; the new one says how many."""
    old = config.get("new_decoder_architecture") is not True
    one = old and config.get("multi_query") is not False
    return (read_heads(config, kv_heads=1 if one else None).layer(),) * layer_count(config)


def multi_query_layers(config: Config) -> tuple[Layer, ...]:
    """GPT-BigCode (StarCoder, SantaCoder): one KV head unless `multi_query` is false."""
    shared = heads_of(config) if config.get("multi_query") is False else 1
    return (read_heads(config, kv_heads=shared).layer(),) * layer_count(config)


def chatglm_layers(config: Config) -> tuple[Layer, ...]:
    """ChatGLM and GLM-4-9B: `multi_query_group_num` KV heads where `multi_query_attention` is true."""
    shared = config.count("multi_query_group_num") if config.get("multi_query_attention") is True else None
    return (read_heads(config, kv_heads=shared).layer(),) * layer_count(config)


def attn_config_layers(config: Config) -> tuple[Layer, ...]:
    """MPT and DBRX: `kv_n_heads` lies in `attn_config`; without it as many as heads."""
    inner = config.get("attn_config")
    shared = inner.get("kv_n_heads") if isinstance(inner, dict) else None
    if shared is not None and not _is_count(shared):
        config.refuse("kv_n_heads", "`kv_n_heads` is no count", wanted="a whole number above 0 was wanted")
        shared = None
    return (read_heads(config, kv_heads=shared).layer(),) * layer_count(config)


def block_layers(config: Config) -> tuple[Layer, ...]:
    """Nemotron-NAS (DeciLM): every block says how many heads share its KV, or that it has no attention."""
    heads = read_heads(config, kv_heads=1)
    layers = layer_count(config)
    blocks = config.get("block_configs")
    if not isinstance(blocks, list) or len(blocks) != layers:
        config.refuse("block_configs", f"no `block_configs` of {layers} blocks", wanted="one for each layer was wanted")
        return ()
    found = [_block(block, heads=heads.attention, dim=heads.dim) for block in blocks]
    bad = [str(number) for number, layer in enumerate(found) if layer is None]
    if bad:
        config.refuse(
            "block_configs",
            f"blocks {', '.join(bad)[:60]} of `block_configs` do not say how {heads.attention} heads share KV",
            wanted="an `n_heads_in_group` that divides the heads was wanted",
        )
    return tuple(layer for layer in found if layer is not None)


def _block(block: object, *, heads: int, dim: int) -> Layer | None:
    """The layer of a block; None where the block does not say what it is."""
    attention = block.get("attention") if isinstance(block, dict) else None
    if not isinstance(attention, dict):
        return None
    if attention.get("no_op") is True or attention.get("replace_with_linear") is True:
        return Layer(kind="no_attention")
    sharing = attention.get("n_heads_in_group")
    if not _is_count(sharing) or heads % sharing:
        return None
    return Layer(kind="full_attention", kv_heads=heads // sharing, key_dim=dim, value_dim=dim)


def gemma4_layers(config: Config) -> tuple[Layer, ...]:
    """Gemma 4: layers that see all have their own head size, and with `attention_k_eq_v` their own KV heads.

    That key means one projection for K and V, not one copy in the cache: vLLM keeps both (gemma4.py). The rule of the
    KV heads is Transformers' (configuration_gemma4.py).
    """
    heads, layers = read_heads(config), layer_count(config)
    window = heads.window(config.count("sliding_window"))
    dim = config.count("global_head_dim", default=heads.dim)
    own = config.get("attention_k_eq_v") is not False
    every = Layer(
        kind="full_attention",
        kv_heads=config.count("num_global_key_value_heads", default=heads.kv) if own else heads.kv,
        key_dim=dim,
        value_dim=dim,
    )
    kinds = layer_kinds(config, layers, frozenset({"full_attention", "sliding_attention"}))
    if kinds is None and config.get("layer_types") is None:
        config.refuse("layer_types", "`layer_types` is missing", wanted="the kind of each layer was wanted")
    return tuple(every if kind == "full_attention" else window for kind in kinds or ())


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
