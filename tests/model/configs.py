"""Configs of well-known models as their makers publish them, cut down to the keys that matter; and their arithmetic."""

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["CONFIGS", "text_of"]


def _flat(architecture: str, layers: int, heads: int, kv_heads: int | None, hidden: int, **more: Any) -> dict[str, Any]:
    keys = {
        "architectures": [architecture],
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "hidden_size": hidden,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    return {key: value for key, value in (keys | more).items() if value is not None}


def _alternating(first: str, second: str, layers: int) -> list[str]:
    return [first, second] * (layers // 2)


_DEEPSEEK = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
_LINEAR = {
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
}

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "OPT-13B": _flat("OPTForCausalLM", 40, 40, None, 5120, torch_dtype="float16"),
    "OPT-66B": _flat("OPTForCausalLM", 64, 72, None, 9216, torch_dtype="float16"),
    "OPT-175B": _flat("OPTForCausalLM", 96, 96, None, 12288, torch_dtype="float16"),
    "BLOOM-176B": {
        "architectures": ["BloomForCausalLM"],
        "n_layer": 70,
        "n_head": 112,
        "n_embed": 14336,
        "seq_length": 2048,
        "torch_dtype": "bfloat16",
    },
    "Llama-3.1-8B": _flat(
        "LlamaForCausalLM", 32, 32, 8, 4096, intermediate_size=14336, vocab_size=128256, tie_word_embeddings=False
    ),
    "Llama-3.1-70B": _flat(
        "LlamaForCausalLM", 80, 64, 8, 8192, intermediate_size=28672, vocab_size=128256, tie_word_embeddings=False
    ),
    "Llama-3.1-405B": _flat("LlamaForCausalLM", 126, 128, 8, 16384, intermediate_size=53248, vocab_size=128256),
    "Qwen3-0.6B": _flat("Qwen3ForCausalLM", 28, 16, 8, 1024, head_dim=128, sliding_window=None),
    "Qwen3-8B": _flat("Qwen3ForCausalLM", 36, 32, 8, 4096, head_dim=128, intermediate_size=12288, vocab_size=151936),
    "Qwen3-32B": _flat("Qwen3ForCausalLM", 64, 64, 8, 5120, head_dim=128),
    "Qwen3-235B-A22B": _flat("Qwen3MoeForCausalLM", 94, 64, 4, 4096, head_dim=128, num_experts=128),
    "DeepSeek-V3": _flat("DeepseekV3ForCausalLM", 61, 128, 128, 7168, **_DEEPSEEK),
    "gpt-oss-120b": _flat(
        "GptOssForCausalLM",
        36,
        64,
        8,
        2880,
        head_dim=64,
        sliding_window=128,
        layer_types=_alternating("sliding_attention", "full_attention", 36),
        quantization_config={"quant_method": "mxfp4"},
        torch_dtype=None,
    ),
    "Gemma-3-27B": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 5376,
            "num_attention_heads": 32,
            "num_hidden_layers": 62,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "sliding_window": 1024,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        },
        "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "num_attention_heads": 16},
    },
    "Mixtral-8x7B": _flat(
        "MixtralForCausalLM",
        32,
        32,
        8,
        4096,
        intermediate_size=14336,
        num_local_experts=8,
        vocab_size=32000,
        sliding_window=None,
    ),
    "Qwen3.5-27B": {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": {
            "model_type": "qwen3_5_text",
            "num_hidden_layers": 64,
            "num_attention_heads": 24,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "hidden_size": 5120,
            "full_attention_interval": 4,
            "linear_num_value_heads": 48,
            "mamba_ssm_dtype": "float32",
            "max_position_embeddings": 262144,
            "dtype": "bfloat16",
            **_LINEAR,
        },
    },
    "Nemotron-3-Nano-30B": _flat(
        "NemotronHForCausalLM",
        52,
        32,
        2,
        2688,
        head_dim=128,
        hybrid_override_pattern="MEMEM*" + "EMEMEM*" * 4 + "EMEMEMEM*" + "EMEMEMEME",
        mamba_num_heads=64,
        mamba_head_dim=64,
        ssm_state_size=128,
        n_groups=8,
        conv_kernel=4,
    ),
}
"""By the model's usual name."""


def text_of(name: str, **changes: Any) -> str:
    """The text of one of `CONFIGS` with some keys changed; a key whose new value is `...` is left out."""
    keys = dict(CONFIGS[name]) | changes
    return json.dumps({key: value for key, value in keys.items() if value is not ...}, indent=1)
