"""`config.json` -> `KvLayout`: what every layer keeps of a sequence, or a refusal that names the keys."""

import json
from dataclasses import dataclass

from hpcserve.model.attention import heads_of
from hpcserve.model.config import Config
from hpcserve.model.context import read_context
from hpcserve.model.dtype import model_dtype, quantised_kv
from hpcserve.model.families import ARCHITECTURES, SECTION_TYPES, Family
from hpcserve.model.layer import Layer
from hpcserve.nouns import KvDtype

__all__ = ["KvLayout", "layout_of", "read_layout"]

# Keys that change how much KV a token leaves, and what each means; a family names those that its rule reads.
_ABOUT_ATTENTION = {
    "kv_lora_rank": "multi-head latent attention",
    "qk_rope_head_dim": "multi-head latent attention",
    "v_head_dim": "values of another size than keys",
    "index_head_dim": "sparse attention, which keeps an index too",
    "index_topk": "sparse attention, which keeps an index too",
    "global_head_dim": "layers with different heads",
    "num_global_key_value_heads": "layers with different heads",
    "block_configs": "layers with different heads",
    "num_kv_shared_layers": "layers that share their KV",
    "use_cla": "layers that share their KV",
    "sliding_window_pattern": "sliding-window layers",
    "attention_chunk_size": "layers that see one chunk",
    "attn_type_list": "layers of several kinds",
    "layers_block_type": "layers of several kinds",
    "hybrid_override_pattern": "layers of several kinds",
    "full_attention_interval": "linear-attention layers",
    "linear_num_key_heads": "linear-attention layers",
    "linear_attn_config": "linear-attention layers",
    "ssm_state_size": "state-space layers",
    "mamba_d_state": "state-space layers",
    "state_size": "state-space layers",
    "cross_attention_layers": "cross-attention layers",
    "encoder_layers": "an encoder",
    "is_encoder_decoder": "an encoder",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """What a model keeps of a sequence, layer by layer."""

    architecture: str
    model_type: str
    layers: tuple[Layer, ...]
    attention_heads: int
    dtype: KvDtype
    """What the model computes in: the config's own."""
    kv_dtype: KvDtype
    """What its KV is kept in with vLLM's `--kv-cache-dtype auto`: `dtype`, or what the quantisation says."""
    intermediate_size: int | None
    """Of a dense MLP, which tensor parallelism divides too; None for experts, or where the key is missing."""
    context_tokens: int | None
    """None where the config does not say, or in a way that is not known."""
    notes: tuple[str, ...]
    """What was read where a person would not look: defaults of a class, types that the engine chooses."""


def layout_of(
    config_text: str,
    *,
    source: str,
    quantisation_text: str | None = None,
    quantisation_source: str = "hf_quant_config.json",
) -> KvLayout:
    """The layout of the model with the `config.json` of `config_text`, and any `hf_quant_config.json` of the other.

    Raises InputError naming every key that is missing, wrong, or not known: nothing is guessed.
    """
    config = Config(config_text, source=source)
    found = read_layout(config, quantisation_text=quantisation_text, quantisation_source=quantisation_source)
    config.finish()
    return found


def read_layout(config: Config, *, quantisation_text: str | None, quantisation_source: str) -> KvLayout:
    """The layout; mistakes are noted in `config`, and where there are any the layout is worth nothing."""
    architecture, family = _family(config)
    if family is not None:
        _refuse_other_attention(config, family)
    layers = family.layers(config) if family is not None else ()
    dtype = model_dtype(config)
    kv_dtype = quantised_kv(config, quantisation_text, side_source=quantisation_source) or dtype
    dense = config.get("num_experts", "num_local_experts", "n_routed_experts") is None
    width = config.get("intermediate_size")
    return KvLayout(
        architecture=architecture,
        model_type=str(config.keys.get("model_type") or config.root.get("model_type") or ""),
        layers=layers,
        attention_heads=heads_of(config) if family is not None else 1,
        dtype=dtype,
        kv_dtype=kv_dtype,
        intermediate_size=width if dense and isinstance(width, int) and width > 0 else None,
        context_tokens=_context(config),
        notes=tuple(config.notes),
    )


def _family(config: Config) -> tuple[str, Family | None]:
    architectures = config.root.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        config.refuse("architectures", "no single `architectures`", wanted="one name in a list was wanted")
        return "", None
    name = architectures[0]
    if config.nested:
        kind = config.keys.get("model_type")
        if isinstance(kind, str) and kind in SECTION_TYPES:
            return name, SECTION_TYPES[kind]
        config.refuse(
            "model_type" if kind is not None else config.section,
            f"`{config.section}` of {name} has "
            + ("no `model_type`" if kind is None else f"`model_type` {json.dumps(kind)[:60]}, which is not known"),
            wanted=f"one of {', '.join(sorted(SECTION_TYPES))} was wanted",
            remedy="fetch the whole config.json, or add its arithmetic to hpcserve/model",
        )
        return name, None
    if name not in ARCHITECTURES:
        config.refuse(
            "architectures",
            f"architecture {name}, whose KV size this version does not know",
            wanted=f"one of {', '.join(sorted(ARCHITECTURES))} was wanted",
            remedy="serve one of these, or add its arithmetic to hpcserve/model",
        )
        return name, None
    return name, ARCHITECTURES[name]


def _refuse_other_attention(config: Config, family: Family) -> None:
    """Refuse keys about attention that the family's rule does not read."""
    other = "a model without it was wanted"
    for key, meaning in _ABOUT_ATTENTION.items():
        if key not in family.reads and config.keys.get(key) not in (None, 0, False):
            config.refuse(key, f"`{key}` says {meaning}", wanted=other)
    if "vision_config" not in family.reads and not config.nested and config.root.get("vision_config") is not None:
        config.refuse("vision_config", "`vision_config` says a model of several parts", wanted=other)
    if "sliding_window" not in family.reads:
        window = config.keys.get("sliding_window")
        if window is not None and config.keys.get("use_sliding_window", True) is not False:
            config.refuse("sliding_window", f"`sliding_window` is {json.dumps(window)[:60]}", wanted=other)
    if "layer_types" not in family.reads:
        kinds = config.keys.get("layer_types")
        if kinds is not None and (not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds)):
            config.refuse(
                "layer_types", "`layer_types` has other kinds", wanted="full_attention in every layer was wanted"
            )


def _context(config: Config) -> int | None:
    """The longest context, where it is said: KV is known without it."""
    mark, notes = len(config.mistakes), len(config.notes)
    tokens = read_context(config)
    if len(config.mistakes) == mark:
        return tokens
    del config.mistakes[mark:], config.notes[notes:]
    return None
