"""The shape of models whose every layer keeps the whole K and V of every token: MHA, GQA and MQA."""

from typing import Literal

from hpcserve.model.config import Config
from hpcserve.nouns import ModelShape

__all__ = ["shape_of"]

# Architectures of which every layer is plain full attention with keys named as Llama's (Transformers' configurations),
# as long as none of the keys below says otherwise.
_FULL_ATTENTION = frozenset(
    {
        "LlamaForCausalLM",
        "MistralForCausalLM",
        "MixtralForCausalLM",
        "OPTForCausalLM",
        "OlmoForCausalLM",
        "Olmo2ForCausalLM",
        "Phi3ForCausalLM",
        "Qwen2ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3ForCausalLM",
        "Qwen3MoeForCausalLM",
    }
)

# Keys that change how much KV a token leaves, and what each means.
_OTHER_ATTENTION = {
    "kv_lora_rank": "multi-head latent attention",
    "qk_rope_head_dim": "multi-head latent attention",
    "v_head_dim": "values of another size than keys",
    "global_head_dim": "layers with different heads",
    "num_global_key_value_heads": "layers with different heads",
    "num_kv_shared_layers": "layers that share their KV",
    "sliding_window_pattern": "sliding-window layers",
    "attn_type_list": "layers of several kinds",
    "layers_block_type": "layers of several kinds",
    "hybrid_override_pattern": "layers of several kinds",
    "full_attention_interval": "linear-attention layers",
    "linear_num_key_heads": "linear-attention layers",
    "ssm_state_size": "state-space layers",
    "mamba_d_state": "state-space layers",
    "state_size": "state-space layers",
    "cross_attention_layers": "cross-attention layers",
    "text_config": "a model of several parts",
    "vision_config": "a model of several parts",
    "encoder_layers": "an encoder",
}

_DTYPE_BYTES = {"bfloat16": 2, "float16": 2}

# Rope scalings that leave `max_position_embeddings` as it is, and those that multiply the context by `factor`;
# the rule of vLLM's ModelConfig (`_get_and_verify_max_len`).
_ROPE_KEEPS = frozenset({"default", "llama3", "longrope", "su"})
_ROPE_STRETCHES = frozenset({"linear", "dynamic", "yarn"})
_LARGEST_FACTOR = 4096


def shape_of(config_text: str, *, name: str, source: str, weights_bytes: int | None) -> ModelShape:
    """The shape of the model whose `config.json` reads `config_text`; `weights_bytes` where the weights are at hand.

    KV bytes per token = 2 x layers x KV heads x head size x bytes per element, what vLLM allocates with its KV dtype
    `auto` and full attention in every layer. Raises InputError naming every key that is missing, wrong, or says that
    the model keeps its KV in another way: nothing is guessed.
    """
    config = Config(config_text, source=source)
    architecture = _architecture(config)
    _refuse_other_attention(config)
    layers = config.count("num_hidden_layers")
    heads = config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", default=heads)
    if heads % kv_heads:
        config.refuse(
            "num_key_value_heads",
            f"`num_key_value_heads` is {kv_heads}, of {heads} attention heads",
            wanted="a divisor of `num_attention_heads` was wanted",
        )
    head_dim = _head_dim(config, heads)
    dtype = _dtype(config)
    context = _context(config)
    config.finish()
    return ModelShape(
        name=name,
        architecture=architecture,
        layers=layers,
        attention_heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        max_context_tokens=context,
        kv_dtype=dtype,
        kv_bytes_per_token=2 * layers * kv_heads * head_dim * _DTYPE_BYTES[dtype],
        weights_bytes=weights_bytes,
    )


def _architecture(config: Config) -> str:
    architectures = config.keys.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        config.refuse("architectures", "no single `architectures`", wanted="one name in a list was wanted")
        return ""
    if architectures[0] not in _FULL_ATTENTION:
        config.refuse(
            "architectures",
            f"architecture {architectures[0]}, whose KV size this version does not know",
            wanted=f"one of {', '.join(sorted(_FULL_ATTENTION))} was wanted",
            remedy="serve one of these, or add its arithmetic to hpcserve/model",
        )
    return architectures[0]


def _refuse_other_attention(config: Config) -> None:
    for key, meaning in _OTHER_ATTENTION.items():
        if config.keys.get(key) is not None:
            config.refuse(key, f"`{key}` says {meaning}", wanted="full attention of one kind in every layer was wanted")
    window = config.keys.get("sliding_window")
    if window is not None and config.keys.get("use_sliding_window", True) is not False:
        config.refuse(
            "sliding_window", f"`sliding_window` is {window}", wanted="full attention in every layer was wanted"
        )
    kinds = config.keys.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds)):
        config.refuse("layer_types", "`layer_types` has other kinds", wanted="full_attention in every layer was wanted")


def _head_dim(config: Config, heads: int) -> int:
    """`head_dim` where it is given: models such as Qwen3 set it apart from hidden size / heads."""
    if config.keys.get("head_dim") is not None:
        return config.count("head_dim")
    hidden = config.count("hidden_size")
    if hidden % heads:
        config.refuse(
            "hidden_size",
            f"`hidden_size` {hidden} is no multiple of {heads} heads, and there is no `head_dim`",
            wanted="a head size was wanted",
        )
    return hidden // heads


def _dtype(config: Config) -> Literal["bfloat16", "float16"]:
    key = "dtype" if config.keys.get("dtype") is not None else "torch_dtype"  # renamed in Transformers 4.56
    match config.keys.get(key):
        case "bfloat16":
            return "bfloat16"
        case "float16":
            return "float16"
        case other:
            config.refuse(
                key,
                f"`{key}` is {'missing' if other is None else other}",
                wanted="bfloat16 or float16 was wanted: for others the engine chooses the KV's type",
                remedy=f"set `{key}` in a copy of the config",
            )
            return "bfloat16"


def _context(config: Config) -> int:
    """Longest context, by vLLM's rule for scaled rope."""
    positions = config.count("max_position_embeddings")
    rope = config.keys.get("rope_scaling")
    if not isinstance(rope, dict):
        rope = config.keys.get("rope_parameters")
    if not isinstance(rope, dict):
        return positions
    kind = str(rope.get("rope_type") or rope.get("type") or "default")
    if kind in _ROPE_KEEPS:
        return positions
    factor = rope.get("factor")
    if kind not in _ROPE_STRETCHES or not isinstance(factor, int | float) or not 1 <= factor <= _LARGEST_FACTOR:
        config.refuse("rope_scaling", f"`rope_scaling` of type {kind}", wanted="one whose factor is known was wanted")
        return positions
    original = rope.get("original_max_position_embeddings")
    if kind == "yarn" and isinstance(original, int) and 0 < original <= positions * factor:
        positions = original
    return int(positions * factor)
