"""The published profile, against values worked out from its coefficients."""

import pytest

from hpcserve.latency import NAMES, Chunk, distserve, named, parallelism_of, subject_of


def test_prefill_and_decode_as_published() -> None:
    model = named("distserve-opt-13b-a100-tp1")
    assert model.prefill_ms([Chunk(512, 0)]) == pytest.approx(18.1025 + 0.101912 * 512 + 7.12226e-6 * 512**2)
    assert model.prefill_ms([Chunk(512, 0), Chunk(256, 0)]) == pytest.approx(
        18.1025 + 0.101912 * 768 + 7.12226e-6 * (512**2 + 256**2)
    )
    assert model.decode_ms(10, 5000) == pytest.approx(19.9347 + 6.26936e-4 * 5010 + 0.0385070 * 10)
    assert model.decode_ms(400, 5000) == pytest.approx(7.16619 + 5.798e-4 * 5400 + 0.158311 * 400)
    assert model.kv_tokens == 66_144


def test_more_ranks_are_faster_and_hold_more() -> None:
    one, two, four = (distserve("opt-13b", ranks) for ranks in (1, 2, 4))
    times = [model.prefill_ms([Chunk(1024, 0)]) for model in (one, two, four)]
    assert times == sorted(times, reverse=True)
    assert [model.kv_tokens for model in (one, two, four)] == [66_144, 163_008, 356_736]


def test_a_stage_of_a_pipeline_takes_its_share() -> None:
    whole, stage = distserve("opt-66b", 2), distserve("opt-66b", 2, stages=2)
    assert stage.prefill_ms([Chunk(700, 0)]) == pytest.approx(whole.prefill_ms([Chunk(700, 0)]) / 2)
    assert stage.decode_ms(8, 4000) == pytest.approx(whole.decode_ms(8, 4000) / 2)
    assert (whole.kv_tokens, stage.kv_tokens) == (11_600, 78_512)
    assert ", 2 stages" in stage.source


def test_the_published_simulator_adds_its_constants() -> None:
    plain, simulated = distserve("opt-13b", 2), distserve("opt-13b", 2, simulator=True)
    assert simulated.prefill_ms([Chunk(500, 0)]) - plain.prefill_ms([Chunk(500, 0)]) == pytest.approx(1 + 2 + 0.05)
    assert simulated.decode_ms(4, 2000) - plain.decode_ms(4, 2000) == pytest.approx(2 + 0.2)


def test_every_name_is_a_profile_with_a_source() -> None:
    assert len(set(NAMES)) == len(NAMES) == 13 + 6
    for name in NAMES:
        model = named(name)
        assert model.kind == "predicted"
        assert "OSDI 2024" in model.source
        assert model.kv_tokens
    assert "vLLM" in named("vllm-opt-66b-a100-tp4").source
    assert [parallelism_of(name) for name in NAMES[:3]] == [(1, 1), (2, 1), (4, 1)]
    assert subject_of(NAMES[0]) == ("opt-13b", "a100")


def test_a_worker_of_two_stages_prefills_as_long_and_decodes_half_batches() -> None:
    """DistServe's simulator divides a step evenly; 163,008 tokens of KV stand in its table for TP 1, PP 2."""
    name = "distserve-opt-13b-a100-tp1-pp2"
    assert parallelism_of(name) == (1, 2)
    one, two = named("distserve-opt-13b-a100-tp1"), named(name)
    assert (one.kv_tokens, two.kv_tokens) == (66_144, 163_008)
    assert two.prefill_ms([Chunk(512, 0)]) == pytest.approx(one.prefill_ms([Chunk(512, 0)]))
    assert two.decode_ms(16, 16 * 512) == pytest.approx(one.decode_ms(8, 8 * 512))
    assert ", 2 stages" in two.source
    assert two.decode_ms(1, 2000) == pytest.approx(one.decode_ms(1, 2000))  # one sequence cannot be divided


def test_what_was_not_published_has_no_name() -> None:
    for model, ranks in (("opt-175b", 8), ("opt-13b", 8)):
        with pytest.raises(KeyError):
            distserve(model, ranks)
    with pytest.raises(KeyError):
        distserve("opt-66b", 2, engine="vllm")
    with pytest.raises(KeyError):
        named("distserve-opt-175b-a100-tp8")
