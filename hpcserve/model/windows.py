"""Which layers look back over a window only, by `layer_types` where it is there, else by the family's own rule."""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from hpcserve.model.attention import layer_count, read_heads
from hpcserve.model.config import Config
from hpcserve.model.layer import Layer

__all__ = [
    "LLAMA4_KEYS",
    "SLIDING_KEYS",
    "chunked_layers",
    "layer_kinds",
    "mistral_layers",
    "pattern_layers",
    "qwen_layers",
    "sliding_by",
]

SLIDING_KEYS = frozenset({"sliding_window", "layer_types"})
LLAMA4_KEYS = frozenset({"attention_chunk_size", "layer_types", "no_rope_layers", "no_rope_layer_interval"})

_SLIDING = frozenset({"full_attention", "sliding_attention"})
_LETTERS: Mapping[str, str] = MappingProxyType({"L": "sliding_attention", "G": "full_attention"})
_CHUNKED = frozenset({"full_attention", "chunked_attention"})


def layer_kinds(config: Config, layers: int, known: frozenset[str]) -> Sequence[str] | None:
    """`layer_types`; None where it is absent. Of another length than the layers, or with other words: a mistake."""
    kinds = config.texts("layer_types")
    if kinds is None:
        return None
    if len(kinds) != layers:
        config.refuse(
            "layer_types",
            f"`layer_types` has {len(kinds)} entries for {layers} layers",
            wanted="one for each layer was wanted",
        )
        return None
    strange = sorted(set(kinds) - known)
    if strange:
        config.refuse(
            "layer_types",
            f"`layer_types` has {', '.join(strange)[:60]}",
            wanted=f"only {' and '.join(sorted(known))} were wanted",
        )
        return None
    return kinds


def mistral_layers(config: Config) -> tuple[Layer, ...]:
    """Mistral, Mixtral, Phi-3, StarCoder2: with a `sliding_window` every layer has it."""
    return sliding_by(config, ("sliding_attention",) * layer_count(config))


def qwen_layers(config: Config) -> tuple[Layer, ...]:
    """Qwen2 and Qwen3: the window counts from layer `max_window_layers` on, and only with `use_sliding_window`.

    Transformers' Qwen2Config; without the key the window is not used.
    """
    layers = layer_count(config)
    if config.get("use_sliding_window") is not True:
        return sliding_by(config, ("full_attention",) * layers)
    first = config.get("max_window_layers")
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        config.refuse("max_window_layers", "`max_window_layers` is no count", wanted="a whole number was wanted")
        first = 0
    return sliding_by(
        config, tuple("sliding_attention" if layer >= first else "full_attention" for layer in range(layers))
    )


def pattern_layers(
    config: Config, *, every: int, names: tuple[str, ...] = ("sliding_window_pattern",)
) -> tuple[Layer, ...]:
    """Every `every`th layer is full, the others have the window: Gemma 2 and 3, gpt-oss, Cohere2, OLMo 3, EXAONE 4.

    `every` is the default of the family's class; a key of `names` says another. `layer_types` goes before both.
    """
    layers = layer_count(config)
    if config.get("layer_types") is not None:
        return sliding_by(config, ("full_attention",) * layers)
    pattern = config.get(*names)
    if isinstance(pattern, str):
        return sliding_by(config, _lettered(config, pattern, layers, names))
    step = config.count(*names, default=every)
    return sliding_by(
        config, tuple("full_attention" if (layer + 1) % step == 0 else "sliding_attention" for layer in range(layers))
    )


def _lettered(config: Config, pattern: str, layers: int, names: tuple[str, ...]) -> tuple[str, ...]:
    """A pattern in letters, as `LLLG`: L has the window, G sees all; repeated, and the last layer always sees all.

    Transformers' Exaone4Config.
    """
    if not pattern or set(pattern) - set(_LETTERS):
        key = next(name for name in names if config.keys.get(name) is not None)
        config.refuse(key, f"`{key}` is {json.dumps(pattern)[:60]}", wanted="a number, or letters L and G, were wanted")
        return ("full_attention",) * layers
    return (*(_LETTERS[pattern[layer % len(pattern)]] for layer in range(layers - 1)), "full_attention")


def sliding_by(config: Config, usual: Sequence[str]) -> tuple[Layer, ...]:
    """Layers by `layer_types`, or `usual` where it is absent; all full where `sliding_window` is null, 0 or absent.

    Transformers writes a 0 for Qwen2-MoE whose window is switched off.
    """
    heads = read_heads(config)
    kinds = layer_kinds(config, len(usual), _SLIDING) or usual
    if config.get("sliding_window") in (None, 0):
        if config.get("layer_types") is not None and "sliding_attention" in kinds:
            config.refuse("sliding_window", "`sliding_window` is missing", wanted="the window's tokens were wanted")
        return (heads.layer(),) * len(kinds)
    window = config.count("sliding_window")
    return tuple(heads.layer() if kind == "full_attention" else heads.window(window) for kind in kinds)


def chunked_layers(config: Config) -> tuple[Layer, ...]:
    """Llama 4: layers with rotary positions see their chunk only; those without (every fourth) see all.

    Transformers' Llama4TextConfig: `no_rope_layers` has a 1 for a layer that is chunked, `no_rope_layer_interval` is 4.
    """
    heads, layers = read_heads(config), layer_count(config)
    chunk = config.count("attention_chunk_size")
    kinds = layer_kinds(config, layers, _CHUNKED)
    if kinds is None:
        marks = config.get("no_rope_layers")
        step = config.count("no_rope_layer_interval", default=4)
        if isinstance(marks, list) and len(marks) == layers:
            kinds = ["chunked_attention" if mark == 1 else "full_attention" for mark in marks]
        else:
            kinds = ["chunked_attention" if (layer + 1) % step else "full_attention" for layer in range(layers)]
    part = Layer(
        kind="chunked_attention",
        kv_heads=heads.kv,
        key_dim=heads.dim,
        value_dim=heads.dim,
        window_tokens=chunk,
    )
    return tuple(part if kind == "chunked_attention" else heads.layer() for kind in kinds)
