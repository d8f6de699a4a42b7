"""Bytes of a model's weights: from the index or the headers of its files, else by arithmetic from the config."""

import json
from dataclasses import dataclass

from hpcserve.errors import InputError
from hpcserve.model.config import Config
from hpcserve.model.dtype import model_dtype

__all__ = ["WeightsCount", "count_weights", "header_bytes", "index_bytes"]

# Architectures whose weights are those of Llama, up to what the flags below say.
_QKV_BIAS = frozenset({"Qwen2ForCausalLM"})
_QK_NORM = frozenset({"Qwen3ForCausalLM", "Qwen3MoeForCausalLM"})
_EXPERTS = frozenset({"MixtralForCausalLM", "Qwen3MoeForCausalLM"})
_KNOWN = _QKV_BIAS | _QK_NORM | _EXPERTS | {"LlamaForCausalLM", "MistralForCausalLM", "Phi3ForCausalLM"}
_ELEMENT_BYTES = 2  # of bfloat16 and float16, the types that `model_dtype` tells


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsCount:
    """Bytes, or why they cannot be known; and where they come from."""

    total_bytes: int | None
    parameters: int | None
    source: str


def index_bytes(index_text: str) -> int | None:
    """`metadata.total_size` of a `model.safetensors.index.json`; None where it is not there."""
    try:
        size = json.loads(index_text)["metadata"]["total_size"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (
        int(size) if isinstance(size, int | float) and not isinstance(size, bool) and 0 < size < float("inf") else None
    )


def header_bytes(header_text: str) -> int | None:
    """Bytes of the tensors of one safetensors file, from its header; None where it is no header."""
    try:
        entries = json.loads(header_text)
        ends = [entry["data_offsets"][1] for name, entry in entries.items() if name != "__metadata__"]
        return max((end for end in ends if isinstance(end, int) and not isinstance(end, bool)), default=None)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None


def count_weights(config_text: str, *, source: str) -> WeightsCount:
    """Bytes of the weights by counting parameters: dense and expert models built as Llama is, not quantised.

    Embeddings, an output layer where it is not tied, and per layer attention, MLP or experts, and norms. Bytes None,
    and the missing keys in `source`, where the config does not say enough.
    """
    config = Config(config_text, source=source)
    names = config.root.get("architectures")
    name = names[0] if isinstance(names, list) and len(names) == 1 and isinstance(names[0], str) else ""
    if config.nested or name not in _KNOWN:
        return _unknown(
            "no rule for the weights of this architecture: fetch the weights, or name a folder that has them"
        )
    if config.root.get("quantization_config") is not None:
        return _unknown("quantised weights: their size is in model.safetensors.index.json, which is not here")
    parameters = _parameters(config, name)
    dtype = model_dtype(config)
    try:
        config.finish()
    except InputError as error:
        found = ", ".join(dict.fromkeys(mistake.found for mistake in error.mistakes))
        return _unknown(f"cannot be counted: {found}")
    return WeightsCount(
        total_bytes=parameters * _ELEMENT_BYTES, parameters=parameters, source=f"{parameters:,} parameters in {dtype}"
    )


def _unknown(why: str) -> WeightsCount:
    return WeightsCount(total_bytes=None, parameters=None, source=why)


def _parameters(config: Config, name: str) -> int:
    hidden, layers = config.count("hidden_size"), config.count("num_hidden_layers")
    heads = config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", default=heads)
    dim = config.count("head_dim", default=max(1, hidden // heads))
    rows = (heads + 2 * kv_heads) * dim
    attention = rows * hidden + heads * dim * hidden
    if name in _QKV_BIAS:
        attention += rows
    elif config.get("attention_bias") is True:
        attention += rows + hidden
    if name in _QK_NORM:
        attention += 2 * dim
    embedding = config.count("vocab_size") * hidden
    tied = config.get("tie_word_embeddings") is True
    layer = attention + _mlp(config, name, hidden) + 2 * hidden
    return embedding * (1 if tied else 2) + layers * layer + hidden


def _mlp(config: Config, name: str, hidden: int) -> int:
    if name not in _EXPERTS:
        return 3 * hidden * config.count("intermediate_size")
    experts = config.count("num_experts", "num_local_experts")
    width = (
        config.count("moe_intermediate_size") if name == "Qwen3MoeForCausalLM" else config.count("intermediate_size")
    )
    return experts * 3 * hidden * width + hidden * experts
