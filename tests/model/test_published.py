"""The KV of models whose figures are published or can be worked out on paper, to the byte."""

import pytest

from hpcserve.model import kept_bytes, layout_of, rank_bytes, sequence_bytes, shape_of
from hpcserve.nouns import ModelShape
from tests.model.configs import text_of

# KV bytes of one token, of one sequence besides, and of a sequence of 4096 tokens.
PUBLISHED = [
    ("OPT-13B", 819_200, 0, 3_355_443_200),
    ("OPT-66B", 2_359_296, 0, 9_663_676_416),
    ("OPT-175B", 4_718_592, 0, 19_327_352_832),
    ("BLOOM-176B", 4_014_080, 0, 16_441_671_680),
    ("Llama-3.1-8B", 131_072, 0, 536_870_912),
    ("Llama-3.1-70B", 327_680, 0, 1_342_177_280),
    ("Llama-3.1-405B", 516_096, 0, 2_113_929_216),
    ("Qwen3-0.6B", 114_688, 0, 469_762_048),
    ("Qwen3-8B", 147_456, 0, 603_979_776),
    ("Qwen3-32B", 262_144, 0, 1_073_741_824),
    ("Qwen3-235B-A22B", 192_512, 0, 788_529_152),
    ("DeepSeek-V3", 70_272, 0, 287_834_112),
    ("gpt-oss-120b", 73_728, 0, 155_713_536),
    ("Gemma-3-27B", 507_904, 0, 771_751_936),
    ("Mixtral-8x7B", 131_072, 0, 536_870_912),
    ("Qwen3.5-27B", 65_536, 153_944_064, 65_536 * 4096 + 153_944_064),
    ("Nemotron-3-Nano-30B", 6_144, 49_082_368, 6_144 * 4096 + 49_082_368),
]


def shape(name: str) -> ModelShape:
    return shape_of(text_of(name), name=name, source="config.json", weights_bytes=None)


@pytest.mark.parametrize(("name", "token", "state", "sequence"), PUBLISHED)
def test_bytes_of_a_token_a_state_and_a_sequence(name: str, token: int, state: int, sequence: int) -> None:
    found = shape(name)
    assert found.kv_bytes_per_token == token
    assert kept_bytes(found, 0) == state
    assert kept_bytes(found, 4096) == sequence
    layout = layout_of(text_of(name), source="config.json")
    assert sequence_bytes(layout, layout.dtype, tokens=4096) == sequence


@pytest.mark.parametrize(("name", "growth"), [("gpt-oss-120b", 36_864), ("Gemma-3-27B", 81_920)])
def test_past_the_window_only_full_layers_grow(name: str, growth: int) -> None:
    found = shape(name)
    assert kept_bytes(found, 5001) - kept_bytes(found, 5000) == growth
    assert kept_bytes(found, 101) - kept_bytes(found, 100) == found.kv_bytes_per_token


# Milliseconds of 4096 tokens at 1 Gbit-Ethernet class, 100 Gbit/s and NVLink of an A100: bytes / rate.
@pytest.mark.parametrize(
    ("name", "at_104_mb_s", "at_12_5_gb_s", "at_600_gb_s"),
    [
        ("Qwen3-0.6B", 4517, 37.58, 0.783),
        ("Qwen3-8B", 5807, 48.32, 1.007),
        ("Llama-3.1-70B", 12906, 107.37, 2.237),
        ("OPT-66B", 92920, 773.09, 16.106),
        ("DeepSeek-V3", 2768, 23.03, 0.480),
        ("gpt-oss-120b", 1497, 12.46, 0.260),
        ("Gemma-3-27B", 7421, 61.74, 1.286),
    ],
)
def test_transfer_times_follow_from_the_bytes(
    name: str, at_104_mb_s: float, at_12_5_gb_s: float, at_600_gb_s: float
) -> None:
    size = kept_bytes(shape(name), 4096)
    assert round(size / 104e6 * 1e3) == at_104_mb_s
    assert round(size / 12.5e9 * 1e3, 2) == at_12_5_gb_s
    assert round(size / 600e9 * 1e3, 3) == at_600_gb_s


@pytest.mark.parametrize(("gb_per_s", "ms"), [(8 * 38, 4.4), (25, 53.7), (3.125, 429.5)])
def test_a_70b_hands_over_4096_tokens_in(gb_per_s: float, ms: float) -> None:
    assert round(kept_bytes(shape("Llama-3.1-70B"), 4096) / gb_per_s / 1e6, 1) == ms


@pytest.mark.parametrize(
    ("name", "by_rank"),
    [
        ("Llama-3.1-8B", {1: 131_072, 2: 65_536, 8: 16_384, 16: 16_384}),
        ("Qwen3-235B-A22B", {4: 48_128, 8: 48_128}),
        ("DeepSeek-V3", {1: 70_272, 8: 70_272}),
        ("gpt-oss-120b", {1: 73_728, 8: 9_216, 16: 9_216}),
    ],
)
def test_a_rank_holds_one_kv_head_at_least_and_a_latent_vector_whole(name: str, by_rank: dict[int, int]) -> None:
    layout = layout_of(text_of(name), source="config.json")
    assert {ranks: rank_bytes(layout, layout.dtype, tensor_parallel=ranks) for ranks in by_rank} == by_rank


def test_windows_are_not_taken_for_whole_layers_in_the_noun() -> None:
    windowed = shape("gpt-oss-120b").groups
    assert [(group.kind, group.layers, group.window_tokens) for group in windowed] == [
        ("sliding_attention", 18, 128),
        ("full_attention", 18, None),
    ]
    assert shape("DeepSeek-V3").kv_heads == 1
