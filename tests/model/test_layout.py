"""Families of models whose layers differ, have no KV, or hide their keys in a section."""

import json
from typing import Any

import pytest

from hpcserve.errors import InputError
from hpcserve.model import KvLayout, explain, facts_of, layout_of, rank_bytes, shape_of
from tests.model.configs import text_of


def layout(**keys: Any) -> KvLayout:
    return layout_of(json.dumps({"torch_dtype": "bfloat16", **keys}, indent=1), source="config.json")


def refusal(**keys: Any) -> str:
    with pytest.raises(InputError) as caught:
        layout(**keys)
    return str(caught.value)


def facts(found: KvLayout) -> dict[str, Any]:
    return dict(facts_of(found))


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 512,
}
NESTED_LLAMA = {"architectures": ["LlavaForConditionalGeneration"], "vision_config": {"num_attention_heads": 16}}
MISTRAL = LLAMA | {"architectures": ["MistralForCausalLM"]}
QWEN = LLAMA | {"architectures": ["Qwen2ForCausalLM"], "sliding_window": 100}
EXAONE = LLAMA | {"architectures": ["Exaone4ForCausalLM"], "sliding_window": 64, "sliding_window_pattern": "LLLG"}
GEMMA4 = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "text_config": {
        "model_type": "gemma4_text",
        "hidden_size": 512,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "global_head_dim": 128,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
        "sliding_window": 32,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    },
}


@pytest.mark.parametrize(
    ("keys", "bytes_per_token"),
    [
        # The old Falcon decoder: one KV head, unless multi_query is false; the new one says how many.
        ({"architectures": ["FalconForCausalLM"], "n_layer": 2, "n_head": 8, "hidden_size": 512}, 2 * 2 * 1 * 64 * 2),
        (
            {
                "architectures": ["FalconForCausalLM"],
                "num_hidden_layers": 2,
                "num_attention_heads": 8,
                "hidden_size": 512,
                "multi_query": False,
            },
            2 * 2 * 8 * 64 * 2,
        ),
        (
            {
                "architectures": ["FalconForCausalLM"],
                "num_hidden_layers": 2,
                "num_attention_heads": 8,
                "hidden_size": 512,
                "new_decoder_architecture": True,
                "num_kv_heads": 4,
            },
            2 * 2 * 4 * 64 * 2,
        ),
        ({"architectures": ["GPTBigCodeForCausalLM"], "n_layer": 2, "n_head": 8, "n_embd": 512}, 2 * 2 * 64 * 2),
        ({"architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_head": 8, "n_embd": 512}, 2 * 2 * 8 * 64 * 2),
        (
            {
                "architectures": ["DbrxForCausalLM"],
                "n_layers": 2,
                "n_heads": 8,
                "d_model": 512,
                "attn_config": {"kv_n_heads": 2},
            },
            2 * 2 * 2 * 64 * 2,
        ),
        (
            {
                "architectures": ["ChatGLMModel"],
                "num_layers": 2,
                "num_attention_heads": 8,
                "hidden_size": 512,
                "kv_channels": 64,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
            },
            2 * 2 * 2 * 64 * 2,
        ),
        ({**GEMMA4}, 2 * (2 * 4 * 64) * 2 + 2 * 2 * 128 * 2),
    ],
)
def test_families_with_their_own_keys(keys: dict[str, Any], bytes_per_token: int) -> None:
    found = layout(**keys)
    assert rank_bytes(found, found.dtype) == bytes_per_token


def test_a_null_count_of_kv_heads_means_one_for_each_head() -> None:
    assert facts(layout(**(LLAMA | {"num_key_value_heads": None})))["kv_bytes_per_token"] == 2 * 4 * 8 * 64 * 2


def test_what_a_section_leaves_out_is_the_default_of_its_class_and_is_said() -> None:
    found = layout(**NESTED_LLAMA, text_config={"model_type": "llama", "max_position_embeddings": 4096})
    assert rank_bytes(found, found.dtype) == 524_288 == 2 * 32 * 32 * 128 * 2
    assert any("`num_hidden_layers`" in note for note in found.notes)
    assert found.context_tokens == 4096


def test_what_a_whole_file_leaves_out_is_missing() -> None:
    told = refusal(architectures=["LlamaForCausalLM"], model_type="llama")
    assert "`num_hidden_layers` is missing" in told
    assert "`num_attention_heads` is missing" in told


def test_a_mistake_that_several_rules_meet_is_told_once() -> None:
    assert refusal(**(LLAMA | {"num_attention_heads": -1})).count("`num_attention_heads` is -1") == 1


def test_a_section_of_a_class_without_known_defaults_names_what_is_missing() -> None:
    told = refusal(**NESTED_LLAMA, text_config={"model_type": "gemma2", "num_hidden_layers": 2})
    assert "`num_attention_heads` is missing" in told
    assert "`num_hidden_layers`" not in told


@pytest.mark.parametrize(
    "section", [{}, {"model_type": "mllama_text_model"}, {"model_type": None}, {"model_type": ["llama"]}]
)
def test_a_section_of_an_unknown_kind_is_refused(section: dict[str, Any]) -> None:
    assert "text_config" in refusal(**NESTED_LLAMA, text_config=section)


def test_mistakes_in_a_section_are_placed_there() -> None:
    section = {"model_type": "llama", "num_attention_heads": -1}
    told = refusal(**NESTED_LLAMA, text_config=section)
    text = json.dumps({"torch_dtype": "bfloat16", **NESTED_LLAMA, "text_config": section}, indent=1).splitlines()
    line = next(number for number, row in enumerate(text, 1) if '"num_attention_heads": -1' in row)
    assert f"config.json:{line}:" in told


@pytest.mark.parametrize(
    ("keys", "full", "sliding", "window"),
    [
        (MISTRAL | {"sliding_window": 4096}, 0, 4, 4096),
        (MISTRAL | {"sliding_window": None}, 4, 0, None),
        (MISTRAL, 4, 0, None),
        (QWEN, 4, 0, None),
        (QWEN | {"sliding_window": 0, "use_sliding_window": False}, 4, 0, None),
        (QWEN | {"use_sliding_window": True, "max_window_layers": 3}, 3, 1, 100),
        (LLAMA | {"architectures": ["Gemma2ForCausalLM"], "sliding_window": 64}, 2, 2, 64),
        (LLAMA | {"architectures": ["Cohere2ForCausalLM"], "sliding_window": 64}, 1, 3, 64),
        (LLAMA | {"architectures": ["Gemma3ForCausalLM"], "sliding_window": 64, "sliding_window_pattern": 2}, 2, 2, 64),
        (EXAONE | {"layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 2}, 2, 2, 64),
        (EXAONE, 1, 3, 64),
        (EXAONE | {"num_hidden_layers": 6}, 2, 4, 64),  # LLLGLL, and the last layer sees all
        (EXAONE | {"sliding_window_pattern": "GL"}, 3, 1, 64),
        (
            LLAMA
            | {
                "architectures": ["Gemma3ForCausalLM"],
                "sliding_window": 64,
                "layer_types": ["full_attention", *["sliding_attention"] * 3],
            },
            1,
            3,
            64,
        ),
        (LLAMA | {"architectures": ["Llama4ForCausalLM"], "attention_chunk_size": 8192}, 1, 3, 8192),
        (
            LLAMA
            | {"architectures": ["Llama4ForCausalLM"], "attention_chunk_size": 8192, "no_rope_layers": [1, 1, 0, 0]},
            2,
            2,
            8192,
        ),
    ],
)
def test_which_layers_look_back_over_a_window(
    keys: dict[str, Any], full: int, sliding: int, window: int | None
) -> None:
    found = facts(layout(**keys))
    assert (found["full_layers"], found["sliding_layers"], found["window"]) == (full, sliding, window)
    assert found["kv_bytes_per_token_full_layers"] == full * 2 * 2 * 64 * 2


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention"] * 3 + ["mamba"]}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 4, "sliding_window": None}, "sliding_window"),
        ({"layer_types": "full"}, "layer_types"),
        ({"sliding_window": "wide"}, "sliding_window"),
        ({"use_sliding_window": True, "max_window_layers": None}, "max_window_layers"),
        ({"attn_type_list": [0, 1]}, "attn_type_list"),
    ],
)
def test_windows_that_make_no_sense_are_refused(changes: dict[str, Any], key: str) -> None:
    assert key in refusal(**(QWEN | changes))


@pytest.mark.parametrize("pattern", ["LLXG", "", [4], 0])
def test_a_pattern_of_windows_that_is_not_known_is_refused(pattern: object) -> None:
    assert "`sliding_window_pattern` is" in refusal(**(EXAONE | {"sliding_window_pattern": pattern}))


def blocks(*sharing: int | None) -> dict[str, Any]:
    return {
        "architectures": ["DeciLMForCausalLM"],
        "num_hidden_layers": len(sharing),
        "num_attention_heads": 8,
        "num_key_value_heads": None,
        "hidden_size": 512,
        "block_configs": [{"attention": {"n_heads_in_group": group, "no_op": group is None}} for group in sharing],
    }


def test_blocks_have_their_own_kv_heads_or_no_attention() -> None:
    found = layout(**blocks(4, None, 8))
    assert rank_bytes(found, found.dtype) == 2 * (2 + 0 + 1) * 64 * 2
    assert "blocks 1 of `block_configs`" in refusal(**blocks(4, 3))
    assert "block_configs" in refusal(**(blocks(4, 4) | {"num_hidden_layers": 3}))
    assert "block_configs" in refusal(**(blocks(4) | {"block_configs": [7]}))


JAMBA = LLAMA | {
    "architectures": ["JambaForCausalLM"],
    "attn_layer_period": 4,
    "attn_layer_offset": 2,
    "mamba_expand": 2,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
}
BAMBA = LLAMA | {
    "architectures": ["BambaForCausalLM"],
    "attn_layer_indices": [1],
    "mamba_n_heads": 16,
    "mamba_d_head": "auto",
    "mamba_expand": 2,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_d_conv": 4,
}


@pytest.mark.parametrize(
    ("keys", "full", "state"),
    [
        # Mamba 1: 1024 channels, a state of 16 and 3 taps each. Mamba 2: 16 heads of 64, 2 x 16 more channels.
        (JAMBA, 1, 3 * (1024 * 16 * 2 + 1024 * 3 * 2)),
        (BAMBA, 1, 3 * (1024 * 16 * 2 + (1024 + 2 * 16) * 3 * 2)),
        (
            BAMBA | {"attn_layer_indices": None, "layer_types": ["mamba", "mamba", "attention", "attention"]},
            2,
            2 * 39_104,
        ),
    ],
)
def test_mamba_layers_keep_a_state_and_no_kv(keys: dict[str, Any], full: int, state: int) -> None:
    found = facts(layout(**keys))
    assert found["kv_bytes_per_token"] == full * 2 * 2 * 64 * 2
    assert (found["full_layers"], found["fixed_state_per_sequence"]) == (full, True)
    assert found["state_bytes_per_sequence"] == state


@pytest.mark.parametrize("pattern", ["MEX*", "", "MM*"])
def test_a_pattern_that_is_not_known_is_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="hybrid_override_pattern"):
        layout_of(text_of("Nemotron-3-Nano-30B", hybrid_override_pattern=pattern), source="config.json")


def test_a_model_without_attention_has_a_layout_but_no_kv_to_place() -> None:
    text = text_of("Nemotron-3-Nano-30B", hybrid_override_pattern="MM", num_hidden_layers=2)
    assert facts(layout_of(text, source="config.json"))["kv_bytes_per_token"] == 0
    with pytest.raises(InputError, match="no layer has attention"):
        shape_of(text, name="m", source="config.json", weights_bytes=None)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Llama-3.1-8B", ["32 full-attention layers x 8 KV heads x 2 x 128 x 2 B = 131,072 B"]),
        ("DeepSeek-V3", ["61 latent-attention layers x 576 (one vector for K and V) x 2 B = 70,272 B"]),
        ("gpt-oss-120b", ["together 73,728 B", "128 tokens at most, 4,718,592 B", "a token adds 36,864 B"]),
        ("Qwen3.5-27B", ["a state of 3,207,168 B each", "153,944,064 B besides"]),
    ],
)
def test_the_arithmetic_is_written_out(name: str, words: list[str]) -> None:
    page = "\n".join(explain(layout_of(text_of(name), source="config.json")))
    for word in words:
        assert word in page
