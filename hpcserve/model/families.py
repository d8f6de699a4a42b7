"""Which rule tells the layers of which model: by architecture, or by `model_type` of a section such as `text_config`.

What is not here is refused: the keys of a model that nobody compared with its engine say nothing for certain.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from hpcserve.model.attention import plain_layers
from hpcserve.model.config import Config
from hpcserve.model.hybrid import (
    BAMBA_KEYS,
    DELTA_KEYS,
    JAMBA_KEYS,
    NEMOTRON_KEYS,
    bamba_layers,
    delta_layers,
    jamba_layers,
    nemotron_layers,
)
from hpcserve.model.layer import Layer
from hpcserve.model.uneven import (
    GEMMA4_KEYS,
    LATENT_KEYS,
    attn_config_layers,
    block_layers,
    chatglm_layers,
    falcon_layers,
    gemma4_layers,
    latent_layers,
    multi_query_layers,
)
from hpcserve.model.windows import (
    LLAMA4_KEYS,
    SLIDING_KEYS,
    chunked_layers,
    mistral_layers,
    pattern_layers,
    qwen_layers,
)

__all__ = ["ARCHITECTURES", "SECTION_TYPES", "Family"]

_PATTERN = ("sliding_window_pattern", "_sliding_window_pattern")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Models whose layers one rule tells, and the keys about attention which that rule reads."""

    layers: Callable[[Config], tuple[Layer, ...]]
    reads: frozenset[str] = frozenset()


def _pattern(every: int) -> Family:
    return Family(layers=partial(pattern_layers, every=every, names=_PATTERN), reads=SLIDING_KEYS | set(_PATTERN))


_PLAIN = Family(layers=plain_layers)
_MISTRAL = Family(layers=mistral_layers, reads=SLIDING_KEYS)
_QWEN = Family(layers=qwen_layers, reads=SLIDING_KEYS)
_QWEN_VISION = Family(layers=qwen_layers, reads=SLIDING_KEYS | {"vision_config"})
_LATENT = Family(layers=latent_layers, reads=LATENT_KEYS)
_DELTA = Family(layers=delta_layers, reads=DELTA_KEYS)
_GEMMA4 = Family(layers=gemma4_layers, reads=GEMMA4_KEYS)
_LLAMA4 = Family(layers=chunked_layers, reads=LLAMA4_KEYS)
_NEMOTRON = Family(layers=nemotron_layers, reads=NEMOTRON_KEYS)
_BAMBA = Family(layers=bamba_layers, reads=BAMBA_KEYS)
_ATTN_CONFIG = Family(layers=attn_config_layers)

_PLAIN_ARCHITECTURES = (
    "ApertusForCausalLM",
    "ArceeForCausalLM",
    "BaichuanForCausalLM",
    "BloomForCausalLM",
    "CohereForCausalLM",
    "GPT2LMHeadModel",
    "GPTJForCausalLM",
    "GPTNeoXForCausalLM",
    "GemmaForCausalLM",
    "Glm4ForCausalLM",
    "Glm4MoeForCausalLM",
    "GlmForCausalLM",
    "GraniteForCausalLM",
    "GraniteMoeForCausalLM",
    "InternLM2ForCausalLM",
    "LlamaForCausalLM",
    "NemotronForCausalLM",
    "OPTForCausalLM",
    "Olmo2ForCausalLM",
    "OlmoForCausalLM",
    "OlmoeForCausalLM",
    "PhiForCausalLM",
    "SeedOssForCausalLM",
    "StableLmForCausalLM",
)

ARCHITECTURES: Mapping[str, Family] = MappingProxyType(
    dict.fromkeys(_PLAIN_ARCHITECTURES, _PLAIN)
    | dict.fromkeys(("MistralForCausalLM", "MixtralForCausalLM", "Phi3ForCausalLM", "Starcoder2ForCausalLM"), _MISTRAL)
    | dict.fromkeys(
        ("Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM", "SmolLM3ForCausalLM"),
        _QWEN,
    )
    | dict.fromkeys(("Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"), _QWEN_VISION)
    | dict.fromkeys(("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "KimiK2ForCausalLM"), _LATENT)
    | dict.fromkeys(("Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"), _DELTA)
    | dict.fromkeys(("MptForCausalLM", "MPTForCausalLM", "DbrxForCausalLM"), _ATTN_CONFIG)
    | dict.fromkeys(("BambaForCausalLM", "GraniteMoeHybridForCausalLM"), _BAMBA)
    | dict.fromkeys(("GptOssForCausalLM", "Gemma2ForCausalLM"), _pattern(2))
    | dict.fromkeys(("Olmo3ForCausalLM", "Cohere2ForCausalLM", "Exaone4ForCausalLM"), _pattern(4))
    | {
        "Gemma3ForCausalLM": _pattern(6),
        "Gemma4ForCausalLM": _GEMMA4,
        "Llama4ForCausalLM": _LLAMA4,
        "NemotronHForCausalLM": _NEMOTRON,
        "JambaForCausalLM": Family(layers=jamba_layers, reads=JAMBA_KEYS),
        "DeciLMForCausalLM": Family(layers=block_layers, reads=frozenset({"block_configs"})),
        "FalconForCausalLM": Family(layers=falcon_layers),
        "GPTBigCodeForCausalLM": Family(layers=multi_query_layers),
        "ChatGLMModel": Family(layers=chatglm_layers),
        "ChatGLMForConditionalGeneration": Family(layers=chatglm_layers),
    }
)
"""By the one name in `architectures`, for models whose keys lie at the top of the file."""

SECTION_TYPES: Mapping[str, Family] = MappingProxyType(
    {
        "llama": _PLAIN,
        "mistral": _MISTRAL,
        "mixtral": _MISTRAL,
        "phi3": _MISTRAL,
        "qwen2": _QWEN,
        "qwen2_moe": _QWEN,
        "qwen2_vl_text": _QWEN,
        "qwen2_5_vl_text": _QWEN,
        "qwen3": _QWEN,
        "qwen3_moe": _QWEN,
        "qwen3_vl_text": _QWEN,
        "qwen3_vl_moe_text": _QWEN,
        "qwen3_5_text": _DELTA,
        "qwen3_5_moe_text": _DELTA,
        "qwen3_next": _DELTA,
        "gemma": _PLAIN,
        "gemma2": _pattern(2),
        "gemma3_text": _pattern(6),
        "gemma4_text": _GEMMA4,
        "gpt_oss": _pattern(2),
        "llama4_text": _LLAMA4,
        "deepseek_v2": _LATENT,
        "deepseek_v3": _LATENT,
        "kimi_k2": _LATENT,
        "glm4_moe": _PLAIN,
        "nemotron_h": _NEMOTRON,
    }
)
"""By the `model_type` of the section that holds the language model's keys."""
