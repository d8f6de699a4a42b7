"""Models in which some layers keep a state of fixed size in place of KV: Mamba and gated delta networks."""

from collections.abc import Callable, Sequence

from hpcserve.model.attention import layer_count, read_heads
from hpcserve.model.config import Config
from hpcserve.model.dtype import state_bytes
from hpcserve.model.layer import Layer
from hpcserve.model.windows import layer_kinds
from hpcserve.nouns import LayerState

__all__ = [
    "BAMBA_KEYS",
    "DELTA_KEYS",
    "JAMBA_KEYS",
    "NEMOTRON_KEYS",
    "bamba_layers",
    "delta_layers",
    "jamba_layers",
    "nemotron_layers",
]

DELTA_KEYS = frozenset({"full_attention_interval", "layer_types", "linear_num_key_heads"})
NEMOTRON_KEYS = frozenset({"hybrid_override_pattern", "layer_types", "layers_block_type", "ssm_state_size"})
BAMBA_KEYS = frozenset({"attn_layer_indices", "layer_types", "layers_block_type", "mamba_d_state"})
JAMBA_KEYS = frozenset({"mamba_d_state", "layer_types", "layers_block_type"})

# The letters of Nemotron-H's pattern (Transformers' configuration_nemotron_h.py), and words that mean the same.
_LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
_WORDS = {"mamba": "linear_attention", "attention": "full_attention"}
_WITHOUT_ANY = frozenset({"moe", "mlp"})


def delta_layers(config: Config) -> tuple[Layer, ...]:
    """Qwen3-Next and Qwen3.5: gated delta networks, every `full_attention_interval`th layer full attention."""
    layers, heads = layer_count(config), read_heads(config)
    keys, values = config.count("linear_num_key_heads"), config.count("linear_num_value_heads")
    key_dim, value_dim = config.count("linear_key_head_dim"), config.count("linear_value_head_dim")
    state = LayerState(
        recurrent_elements=values * value_dim * key_dim,
        recurrent_element_bytes=state_bytes(config, "mamba_ssm_dtype", usual=None),
        channels=2 * keys * key_dim + values * value_dim,
        groups=0,
        channels_per_group=0,
        taps=config.count("linear_conv_kernel_dim") - 1,
        element_bytes=state_bytes(config, usual=None),
        heads=values,
    )
    kinds = layer_kinds(config, layers, frozenset({"full_attention", "linear_attention"}))
    if kinds is None:
        step = config.count("full_attention_interval")
        kinds = ["linear_attention" if (layer + 1) % step else "full_attention" for layer in range(layers)]
    linear = Layer(kind="linear_attention", state=state)
    return tuple(heads.layer() if kind == "full_attention" else linear for kind in kinds)


def nemotron_layers(config: Config) -> tuple[Layer, ...]:
    """Nemotron-H and Nemotron-3: the pattern has a letter for each layer; Mamba 2, attention, experts or a plain MLP.

    The recurrent state is float32 unless the config says otherwise (vLLM's NemotronHForCausalLMConfig).
    """
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        if not pattern or set(pattern) - set(_LETTERS):
            config.refuse(
                "hybrid_override_pattern",
                "`hybrid_override_pattern` has none or other letters",
                wanted="only M, E, * and - were wanted",
            )
        kinds: Sequence[str] = [_LETTERS.get(letter, "moe") for letter in pattern]
        if len(kinds) != config.count("num_hidden_layers", default=len(kinds)):
            config.refuse(
                "hybrid_override_pattern",
                f"`hybrid_override_pattern` has {len(kinds)} layers",
                wanted="one for each layer was wanted",
            )
    else:
        kinds = _worded(config, "layers_block_type", "layer_types")
    state = _mamba2(
        config,
        heads="mamba_num_heads",
        head_dim="mamba_head_dim",
        state="ssm_state_size",
        groups="n_groups",
        kernel="conv_kernel",
        usual=4,
    )
    return _by_kind(config, kinds, state)


def bamba_layers(config: Config) -> tuple[Layer, ...]:
    """Bamba and Granite 4: Mamba 2, and attention where `layer_types` or `attn_layer_indices` says so."""
    layers = layer_count(config)
    indices = config.get("attn_layer_indices")
    if isinstance(indices, list):
        kinds: Sequence[str] = ["full_attention" if n in indices else "linear_attention" for n in range(layers)]
    else:
        kinds = _worded(config, "layer_types", "layers_block_type")
    state = _mamba2(
        config,
        heads="mamba_n_heads",
        head_dim="mamba_d_head",
        state="mamba_d_state",
        groups="mamba_n_groups",
        kernel="mamba_d_conv",
        usual=None,
    )
    return _by_kind(config, kinds, state)


def jamba_layers(config: Config) -> tuple[Layer, ...]:
    """Jamba: Mamba 1, and attention in every `attn_layer_period`th layer from `attn_layer_offset` on."""
    layers = layer_count(config)
    period, offset = config.count("attn_layer_period"), config.get("attn_layer_offset")
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        config.refuse("attn_layer_offset", "no `attn_layer_offset`", wanted="a whole number was wanted")
        offset = 0
    width = config.count("mamba_expand") * config.count("hidden_size")

    def state() -> LayerState:
        return LayerState(
            recurrent_elements=width * config.count("mamba_d_state"),
            recurrent_element_bytes=state_bytes(config, usual=None),
            channels=width,
            groups=0,
            channels_per_group=0,
            taps=config.count("mamba_d_conv") - 1,
            element_bytes=state_bytes(config, usual=None),
            heads=width,
        )

    kinds = ["full_attention" if layer % period == offset else "linear_attention" for layer in range(layers)]
    return _by_kind(config, kinds, state)


def _mamba2(
    config: Config, *, heads: str, head_dim: str, state: str, groups: str, kernel: str, usual: int | None
) -> Callable[[], LayerState]:
    def made() -> LayerState:
        count = config.count(heads)
        if config.get(head_dim) == "auto":
            dim = config.count("mamba_expand") * config.count("hidden_size") // count
        else:
            dim = config.count(head_dim)
        size = config.count(state)
        return LayerState(
            recurrent_elements=count * dim * size,
            recurrent_element_bytes=state_bytes(config, "mamba_ssm_cache_dtype", usual=usual),
            channels=count * dim,
            groups=config.count(groups),
            channels_per_group=2 * size,
            taps=config.count(kernel) - 1,
            element_bytes=state_bytes(config, usual=None),
            heads=count,
        )

    return made


def _worded(config: Config, *names: str) -> Sequence[str]:
    """The kinds of layers as one of the lists `names` says them; a mistake where none is there."""
    for name in names:
        kinds = config.texts(name)
        if kinds is not None:
            return [_WORDS.get(kind, kind) for kind in kinds]
    config.refuse(names[0], f"`{names[0]}` is missing", wanted="the kind of each layer was wanted")
    return ()


def _by_kind(config: Config, kinds: Sequence[str], state: Callable[[], LayerState]) -> tuple[Layer, ...]:
    """A layer of each kind; heads and states are read only where a layer needs them."""
    strange = sorted(set(kinds) - {"linear_attention", "full_attention"} - _WITHOUT_ANY)
    if strange:
        config.refuse(
            "layer_types", f"layers of kind {', '.join(strange)[:60]}", wanted="attention or mamba was wanted"
        )
    made = {kind: Layer(kind="no_attention") for kind in {*_WITHOUT_ANY, *strange}}
    if "full_attention" in kinds:
        made["full_attention"] = read_heads(config).layer()
    if "linear_attention" in kinds:
        made["linear_attention"] = Layer(kind="state_space", state=state())
    return tuple(made[kind] for kind in kinds)
