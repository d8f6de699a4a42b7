"""How a model can be cut, what a rank holds, what fits, and in which type its KV is kept."""

import json
from itertools import accumulate, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcserve.errors import InputError
from hpcserve.model import (
    KvLayout,
    capacity,
    facts_of,
    kept_bytes,
    largest_stage_bytes,
    layout_of,
    pipeline_obstacle,
    rank_bytes,
    sequence_bytes,
    shape_of,
    stage_bytes,
    stage_layers,
    tensor_parallel_pairs,
    tensor_parallel_sizes,
)
from tests.model.configs import CONFIGS, text_of

GIB = 2**30


def named(name: str, **changes: Any) -> KvLayout:
    return layout_of(text_of(name, **changes), source="config.json")


@pytest.mark.parametrize(
    ("layers", "stages", "cut"),
    [(126, 4, (31, 32, 32, 31)), (80, 4, (20,) * 4), (61, 2, (31, 30)), (5, 4, (1, 1, 2, 1)), (7, 1, (7,))],
)
def test_stages_are_cut_as_vllm_cuts_them(layers: int, stages: int, cut: tuple[int, ...]) -> None:
    assert stage_layers(layers, stages) == cut


@given(layers=st.integers(1, 300), data=st.data())
def test_every_layer_is_in_one_stage_and_stages_differ_by_one_at_most(layers: int, data: st.DataObject) -> None:
    cut = stage_layers(layers, data.draw(st.integers(1, layers)))
    assert sum(cut) == layers
    assert max(cut) - min(cut) <= 1
    assert cut[-1] == min(cut)


@pytest.mark.parametrize("stages", [0, -1, 81])
def test_a_stage_without_layers_is_refused(stages: int) -> None:
    with pytest.raises(ValueError, match="cannot be cut"):
        stage_layers(80, stages)


def test_the_worst_stage_of_a_405b_has_32_layers() -> None:
    layout = named("Llama-3.1-405B")
    assert largest_stage_bytes(layout, "bfloat16", stages=4) == 131_072
    assert facts_of(layout)["pp4_layers"] == [31, 32, 32, 31]
    assert facts_of(layout)["pp4_worst_stage_bytes"] == 131_072


@pytest.mark.parametrize(
    ("name", "changes", "sizes"),
    [
        ("Llama-3.1-70B", {}, (1, 2, 4, 8, 16, 32, 64)),
        # 28 heads allow 7 ranks, 18944 of the MLP do not; 4 KV heads and 14 ranks do not go together.
        (
            "Llama-3.1-8B",
            {
                "num_attention_heads": 28,
                "num_key_value_heads": 4,
                "hidden_size": 3584,
                "intermediate_size": 18944,
            },
            (1, 2, 4),
        ),
        (
            "Llama-3.1-8B",
            {"num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "intermediate_size": 1536},
            (1, 3),
        ),
        ("Nemotron-3-Nano-30B", {}, (1, 2, 4, 8, 16, 32)),
        ("DeepSeek-V3", {}, (1, 2, 4, 8, 16, 32, 64)),
    ],
)
def test_ranks_divide_heads_mlp_and_states(name: str, changes: dict[str, Any], sizes: tuple[int, ...]) -> None:
    assert tensor_parallel_sizes(named(name, **changes)) == sizes


def test_phases_may_differ_where_no_kv_head_is_copied() -> None:
    pairs = tensor_parallel_pairs(named("Qwen3-235B-A22B"))
    assert {(1, 4), (4, 1), (2, 4)} <= set(pairs)
    assert all(max(pair) <= 4 for pair in pairs)
    assert tensor_parallel_pairs(named("Nemotron-3-Nano-30B")) == ()
    assert (8, 16) in tensor_parallel_pairs(named("DeepSeek-V3"))


def test_copies_of_kv_heads_cost_memory() -> None:
    layout = named("Qwen3-235B-A22B")
    assert 8 * rank_bytes(layout, "bfloat16", tensor_parallel=8) == 2 * rank_bytes(layout, "bfloat16")


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_ranks_together_hold_the_whole_at_least(name: str) -> None:
    layout = named(name)
    for ranks in tensor_parallel_sizes(layout):
        assert ranks * sequence_bytes(layout, layout.dtype, tokens=777, tensor_parallel=ranks) >= sequence_bytes(
            layout, layout.dtype, tokens=777
        )


def test_a_state_whose_groups_are_fewer_than_the_ranks_is_copied() -> None:
    # 8 groups on 16 ranks count as 16: 2 x 8 x 128 more channels of convolution, 3 taps, 2 bytes, in 23 layers.
    layout = named("Nemotron-3-Nano-30B")
    whole = sequence_bytes(layout, "bfloat16", tokens=0)
    assert 16 * sequence_bytes(layout, "bfloat16", tokens=0, tensor_parallel=16) == whole + 23 * 2048 * 3 * 2


def test_what_fits_on_a_gpu() -> None:
    # 80 GiB x 0.9 less 35 GiB of weights are 37 GiB; a rank of 4 keeps 81,920 B a token, a block of 16 is 1.25 MiB.
    fits = capacity(
        named("Llama-3.1-70B"),
        "bfloat16",
        memory_bytes=80 * GIB,
        utilisation=0.9,
        weights_bytes=140 * GIB,
        tensor_parallel=4,
        context_tokens=4096,
    )
    assert fits.kv_bytes == 37 * GIB
    assert fits.tokens == 37 * GIB // (16 * 81_920) * 16
    assert fits.sequences == 37 * GIB // (4096 * 81_920)


def test_the_stage_with_most_layers_decides_what_fits() -> None:
    fits = capacity(
        named("Llama-3.1-405B"), "fp8", memory_bytes=100 * GIB, utilisation=1, weights_bytes=126 * GIB, stages=4
    )
    assert fits.kv_bytes == 68 * GIB
    assert fits.tokens == 68 * GIB // (65_536 * 16) * 16
    assert fits.sequences is None


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_stages_together_keep_what_the_model_keeps(name: str) -> None:
    layout = named(name)
    shape = shape_of(text_of(name), name=name, source="config.json", weights_bytes=None)
    for stages, ranks in product((1, 2, 3, 8), (1, 2)):
        kept = stage_bytes(shape, 4096, stages=stages, tensor_parallel=ranks)
        assert sum(kept) == kept_bytes(shape, 4096, tensor_parallel=ranks)
    for stages in (2, 4):
        ends = list(accumulate(stage_layers(len(layout.layers), stages)))
        cuts = [layout.layers[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        expected = tuple(sum(layer.bytes_of(777, shape.kv_dtype) for layer in cut) for cut in cuts)
        assert stage_bytes(shape, 777, stages=stages) == expected


def test_stages_that_a_model_cannot_have() -> None:
    shape = shape_of(text_of("Llama-3.1-8B"), name="Llama", source="config.json", weights_bytes=None)
    assert pipeline_obstacle(shape, 32) is None
    assert pipeline_obstacle(shape, 33) == "is more than its 32 layers"


def test_nothing_fits_where_the_weights_do_not() -> None:
    fits = capacity(
        named("Llama-3.1-70B"),
        "bfloat16",
        memory_bytes=80 * GIB,
        utilisation=0.9,
        weights_bytes=140 * GIB,
        context_tokens=1,
    )
    assert (fits.kv_bytes, fits.tokens, fits.sequences) == (0, 0, 0)


def test_windows_let_more_sequences_fit_than_tokens_say() -> None:
    fits = capacity(
        named("gpt-oss-120b"), "bfloat16", memory_bytes=GIB, utilisation=1, weights_bytes=0, context_tokens=4096
    )
    assert fits.tokens == GIB // (73_728 * 16) * 16
    assert fits.sequences == GIB // 155_713_536


FP8_SIDE = json.dumps(
    {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
)
WEIGHTS_SIDE = json.dumps({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}})
SCHEME = {"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}


@pytest.mark.parametrize(
    ("quantisation", "side", "dtype", "bytes_per_token"),
    [
        (None, None, "bfloat16", 327_680),
        (None, FP8_SIDE, "fp8", 163_840),
        (None, WEIGHTS_SIDE, "bfloat16", 327_680),
        ({"quant_method": "fp8"}, None, "bfloat16", 327_680),
        ({"quant_method": "fp8"}, FP8_SIDE, "bfloat16", 327_680),  # the config's own word comes first
        ({"quant_method": "compressed-tensors", **SCHEME}, None, "fp8", 163_840),
        ({"quant_method": "modelopt", "kv_cache_quant_algo": "NVFP4"}, None, "nvfp4", 327_680 * 9 // 32),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": None}, None, "bfloat16", 327_680),
    ],
)
def test_only_a_word_about_the_cache_changes_its_type(
    quantisation: dict[str, Any] | None, side: str | None, dtype: str, bytes_per_token: int
) -> None:
    text = text_of("Llama-3.1-70B", quantization_config=quantisation)
    shape = shape_of(text, name="m", source="config.json", weights_bytes=None, quantisation_text=side)
    assert (shape.kv_dtype, shape.kv_bytes_per_token) == (dtype, bytes_per_token)
    facts = facts_of(layout_of(text, source="config.json", quantisation_text=side))
    assert (facts["dtype"], facts["kv_bytes_per_token"]) == ("bfloat16", 327_680)
    assert (facts["kv_cache_dtype"], facts["kv_cache_bytes_per_token"]) == (dtype, bytes_per_token)
    assert facts["kv_bytes_per_token_fp8"] == 163_840


@pytest.mark.parametrize(
    ("quantisation", "side"),
    [
        ({"kv_cache_quant_algo": "INT3"}, None),
        ({"kv_cache_scheme": {"num_bits": 8, "type": "int"}}, None),
        ({"kv_cache_scheme": 7}, None),
        ("fp8", None),
        (None, "["),
        (None, "[1]"),
    ],
)
def test_a_cache_type_that_is_not_known_is_refused(quantisation: object, side: str | None) -> None:
    with pytest.raises(InputError):
        layout_of(
            text_of("Llama-3.1-70B", quantization_config=quantisation), source="config.json", quantisation_text=side
        )


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"torch_dtype": "float16"}, "float16"),
        ({"torch_dtype": "float32"}, "bfloat16"),
        ({"torch_dtype": ..., "dtype": "float16"}, "float16"),
        ({"torch_dtype": ...}, "bfloat16"),
    ],
)
def test_the_type_of_the_model_is_16_bits_and_a_choice_is_said(changes: dict[str, Any], dtype: str) -> None:
    found = named("Llama-3.1-8B", **changes)
    assert found.dtype == dtype
    assert bool(found.notes) == ("float16" not in changes.values())


KEYS = sorted({key for config in CONFIGS.values() for key in [*config, *config.get("text_config", {})]})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**40) | st.floats() | st.sampled_from(["", "fp8", "auto", "llama"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=300)
@given(
    name=st.sampled_from(sorted(CONFIGS)),
    changes=st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4),
    deep=st.booleans(),
)
def test_any_json_is_a_layout_or_a_refusal(name: str, changes: dict[str, Any], deep: bool) -> None:
    config = dict(CONFIGS[name])
    if deep and "text_config" in config:
        config["text_config"] = config["text_config"] | changes
    else:
        config |= changes
    try:
        layout = layout_of(json.dumps(config), source="config.json")
    except InputError:
        return
    assert json.dumps(dict(facts_of(layout)))
    for ranks in tensor_parallel_sizes(layout):
        assert ranks * rank_bytes(layout, "fp8", tensor_parallel=ranks) >= rank_bytes(layout, "fp8")
    assert sequence_bytes(layout, "bfloat16", tokens=10) <= sequence_bytes(layout, "bfloat16", tokens=11)
