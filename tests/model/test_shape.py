import contextlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.errors import InputError
from hpcserve.model import shape_of
from hpcserve.nouns import ModelShape

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"],
    "dtype": "bfloat16",
    "head_dim": 64,
    "hidden_size": 576,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rope_parameters": {"rope_theta": 100000.0, "rope_type": "default"},
}


def shape(**changes: Any) -> ModelShape:
    keys = {key: value for key, value in (SMOLLM2 | changes).items() if value != "absent"}
    return shape_of(json.dumps(keys, indent=1), name="m", source="config.json", weights_bytes=None)


def refusal(**changes: Any) -> str:
    with pytest.raises(InputError) as caught:
        shape(**changes)
    return str(caught.value)


def test_smollm2_leaves_23040_bytes_per_token() -> None:
    assert shape().kv_bytes_per_token == 23_040 == 30 * 3 * 64 * 2 * 2


@pytest.mark.parametrize(
    ("model", "changes", "bytes_per_token"),
    [
        ("Llama-3.1-8B", {"num_hidden_layers": 32, "num_key_value_heads": 8, "head_dim": 128}, 131_072),
        ("Llama-3.1-70B", {"num_hidden_layers": 80, "num_key_value_heads": 8, "head_dim": 128}, 327_680),
        ("Llama-3.1-405B", {"num_hidden_layers": 126, "num_key_value_heads": 8, "head_dim": 128}, 516_096),
        ("Qwen3-235B-A22B", {"num_hidden_layers": 94, "num_key_value_heads": 4, "head_dim": 128}, 192_512),
    ],
)
def test_published_models(model: str, changes: dict[str, int], bytes_per_token: int) -> None:
    assert shape(**changes, num_attention_heads=64, hidden_size=8192).kv_bytes_per_token == bytes_per_token, model


def test_one_kv_head_for_all_is_multi_query_attention() -> None:
    assert shape(num_key_value_heads=1).kv_bytes_per_token == 30 * 1 * 64 * 2 * 2


def test_head_dim_wins_over_hidden_size_by_heads() -> None:
    # Qwen3-0.6B: 1024 / 16 = 64, and yet its heads are 128 wide.
    qwen = shape(
        architectures=["Qwen3ForCausalLM"],
        hidden_size=1024,
        num_attention_heads=16,
        num_key_value_heads=8,
        num_hidden_layers=28,
        head_dim=128,
    )
    assert qwen.kv_bytes_per_token == 114_688


@pytest.mark.parametrize("kv_heads", [None, "absent"])
def test_without_kv_heads_every_head_has_its_own_kv(kv_heads: str | None) -> None:
    opt = shape(
        architectures=["OPTForCausalLM"],
        hidden_size=5120,
        num_attention_heads=40,
        num_hidden_layers=40,
        num_key_value_heads=kv_heads,
        head_dim="absent",
        dtype="absent",
        torch_dtype="float16",
    )
    assert (opt.kv_heads, opt.kv_bytes_per_token) == (40, 819_200)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"architectures": ["T5ForConditionalGeneration"]}, "T5ForConditionalGeneration"),
        ({"architectures": ["DeepseekV3ForCausalLM"]}, "kv_lora_rank"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"index_topk": 2048}, "index_topk"),
        ({"vision_config": {}}, "vision_config"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ({"architectures": None}, "architectures"),
        ({"kv_lora_rank": 512}, "kv_lora_rank"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"layer_types": ["linear_attention"]}, "layer_types"),
        ({"text_config": {}}, "text_config"),
        ({"num_hidden_layers": "absent"}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_key_value_heads": 4}, "num_key_value_heads"),
        ({"head_dim": None, "hidden_size": 577}, "hidden_size"),
        ({"dtype": "int4"}, "dtype"),
        ({"dtype": ["bfloat16"]}, "dtype"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"rope_scaling": {"rope_type": "new", "factor": 2}}, "rope_scaling"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_scaling"),
    ],
)
def test_what_is_not_known_is_refused_by_name(changes: dict[str, Any], key: str) -> None:
    assert key in refusal(**changes)


def test_all_mistakes_come_at_once_with_their_places() -> None:
    text = refusal(num_hidden_layers=-1, kv_lora_rank=512, dtype="int4")
    assert 'config.json:5:2: `dtype` is "int4"' in text
    assert "`num_hidden_layers` is -1" in text
    assert "kv_lora_rank" in text


def test_a_window_that_is_switched_off_is_no_window() -> None:
    qwen = shape(architectures=["Qwen2ForCausalLM"], sliding_window=32768, use_sliding_window=False)
    assert qwen.kv_bytes_per_token == 23_040


@pytest.mark.parametrize(
    ("rope", "context"),
    [
        (None, 8192),
        ({"rope_type": "llama3", "factor": 8.0}, 8192),
        ({"type": "linear", "factor": 2.0}, 16384),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}, 16384),
    ],
)
def test_scaled_rope_stretches_the_context_as_vllm_does(rope: dict[str, Any] | None, context: int) -> None:
    assert shape(rope_scaling=rope, rope_parameters="absent").max_context_tokens == context


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a":' * 5000, '{"a": ' + "9" * 5000 + "}", "null"])
def test_what_is_no_config_is_one_mistake(text: str) -> None:
    with pytest.raises(InputError) as caught:
        shape_of(text, name="m", source="config.json", weights_bytes=None)
    assert len(caught.value.mistakes) == 1


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)
@given(key=st.sampled_from([*SMOLLM2, "rope_scaling", "layer_types", "sliding_window", "kv_lora_rank"]), value=values)
def test_any_value_of_any_key_is_a_shape_or_a_refusal(key: str, value: Any) -> None:
    with contextlib.suppress(InputError):
        assert shape(**{key: value}).kv_bytes_per_token > 0
