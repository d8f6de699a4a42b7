"""Bytes of weights: from the index, from headers, by counting."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.model import WeightsCount, count_weights, header_bytes, index_bytes
from tests.model.configs import text_of


def counted(name: str, **changes: Any) -> WeightsCount:
    return count_weights(text_of(name, **changes), source="config.json")


# Parameters as the models' own pages and checkpoints give them.
@pytest.mark.parametrize(
    ("name", "changes", "parameters"),
    [
        ("Llama-3.1-8B", {}, 8_030_261_248),
        ("Llama-3.1-70B", {}, 70_553_706_496),
        ("Mixtral-8x7B", {}, 46_702_792_704),
        ("Qwen3-8B", {}, 8_190_735_360),
        (
            "Qwen3-8B",  # Qwen2.5-7B
            {
                "architectures": ["Qwen2ForCausalLM"],
                "num_hidden_layers": 28,
                "num_attention_heads": 28,
                "num_key_value_heads": 4,
                "hidden_size": 3584,
                "intermediate_size": 18944,
                "vocab_size": 152064,
            },
            7_615_616_512,
        ),
        (
            "Qwen3-235B-A22B",  # Qwen3-30B-A3B
            {
                "num_hidden_layers": 48,
                "num_attention_heads": 32,
                "hidden_size": 2048,
                "moe_intermediate_size": 768,
                "vocab_size": 151936,
            },
            30_532_122_624,
        ),
        (
            "Llama-3.1-8B",  # SmolLM2-135M
            {
                "num_hidden_layers": 30,
                "num_attention_heads": 9,
                "num_key_value_heads": 3,
                "hidden_size": 576,
                "intermediate_size": 1536,
                "vocab_size": 49152,
                "tie_word_embeddings": True,
            },
            134_515_008,
        ),
    ],
)
def test_parameters_of_published_models(name: str, changes: dict[str, Any], parameters: int) -> None:
    found = counted(name, **changes)
    assert (found.parameters, found.total_bytes) == (parameters, 2 * parameters)


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("Llama-3.1-8B", {"intermediate_size": ...}, "`intermediate_size` is missing"),
        ("Llama-3.1-8B", {"vocab_size": ..., "intermediate_size": ...}, "`vocab_size` is missing"),
        ("Llama-3.1-8B", {"quantization_config": {"quant_method": "fp8"}}, "quantised"),
        ("DeepSeek-V3", {}, "no rule"),
        ("Gemma-3-27B", {}, "no rule"),
        ("Llama-3.1-8B", {"architectures": None}, "no rule"),
        ("Llama-3.1-8B", {"num_attention_heads": -3}, "`num_attention_heads` is -3"),
    ],
)
def test_what_cannot_be_counted_says_why(name: str, changes: dict[str, Any], why: str) -> None:
    found = counted(name, **changes)
    assert found.total_bytes is None
    assert why in found.source


def test_index_and_header_say_how_many_bytes() -> None:
    assert index_bytes('{"metadata": {"total_size": 141107412992}, "weight_map": {}}') == 141_107_412_992
    header = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]},
        "b": {"dtype": "BF16", "shape": [3], "data_offsets": [4, 10]},
    }
    assert header_bytes(json.dumps(header)) == 10


@given(st.text() | st.recursive(st.none() | st.integers() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_other_text_says_nothing(text: str) -> None:
    assert index_bytes(text) is None
    assert header_bytes(text) is None


@pytest.mark.parametrize("size", ["0", "-1", "true", "1e999", '"7"', "NaN", "null"])
def test_a_size_that_is_none_is_not_taken(size: str) -> None:
    assert index_bytes(f'{{"metadata": {{"total_size": {size}}}}}') is None
