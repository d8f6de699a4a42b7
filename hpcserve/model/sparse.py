"""What a section of a config means by what it leaves out: the defaults of Transformers' configuration classes.

A model of several parts saves its `text_config` without the values that equal the defaults of that class, so these are
read, not guessed. Values: `configuration_*.py` of Transformers 5.19, printed by making an empty configuration.
"""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["CLASS_DEFAULTS"]

_LLAMA = {
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "max_position_embeddings": 2048,
    "vocab_size": 32000,
}

CLASS_DEFAULTS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "llama": _LLAMA,
        "mistral": {
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "sliding_window": 4096,
            "max_position_embeddings": 131072,
            "vocab_size": 32000,
        },
        "qwen2": {
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "hidden_size": 4096,
            "intermediate_size": 22016,
            "max_position_embeddings": 32768,
            "max_window_layers": 28,
            "vocab_size": 151936,
        },
        "qwen3": {
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "head_dim": 128,
            "hidden_size": 4096,
            "intermediate_size": 22016,
            "max_position_embeddings": 32768,
            "max_window_layers": 28,
            "vocab_size": 151936,
        },
        "gemma3_text": {
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "sliding_window": 4096,
            "max_position_embeddings": 131072,
            "vocab_size": 262208,
        },
    }
)
"""By `model_type` of the section. Types that are not here must say every key."""
