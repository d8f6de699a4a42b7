"""Queueing formulas against values worked out by hand and printed in public."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.latency import (
    LinearLatency,
    busy_share,
    constant_service_wait_ms,
    general_service_wait_ms,
    named,
    quick_ttft_ms,
    split_layers_ttft_ms,
    split_operators_ttft_ms,
)
from hpcserve.latency.step import Chunk

FLAT = LinearLatency(
    prefill_base_ms=0.0,
    prefill_ms_per_token=0.1,
    prefill_ms_per_token2=0.0,
    decode_base_ms=7.0,
    decode_ms_per_sequence=0.0,
    decode_ms_per_context_token=0.0,
    kv_tokens=None,
    source="made up",
    kind="predicted",
)


# D = 250 ms, K = 1.7: mean TTFT on one GPU, on two that share the layers, on two that share the operators.
@pytest.mark.parametrize(
    ("rate", "single", "layers", "operators"), [(1.0, 291.7, 258.9, 159.7), (3.0, 625.0, 287.5, 205.1)]
)
def test_one_gpu_two_stages_and_two_ranks(rate: float, single: float, layers: float, operators: float) -> None:
    assert 250 + constant_service_wait_ms(rate, 250) == pytest.approx(single, abs=0.06)
    assert split_layers_ttft_ms(rate, 250) == pytest.approx(layers, abs=0.06)
    assert split_operators_ttft_ms(rate, 250, 1.7) == pytest.approx(operators, abs=0.06)


# Utilisation above which stages beat ranks, by the ranks' speed-up.
@pytest.mark.parametrize(("speed_up", "busy"), [(1.3, 0.611), (1.5, 0.936), (1.7, 1.257), (1.9, 1.626)])
def test_stages_beat_ranks_from_a_load_that_grows_with_the_speed_up(speed_up: float, busy: float) -> None:
    below, above = (busy - 0.001) * 10, (busy + 0.001) * 10
    assert split_operators_ttft_ms(below, 100, speed_up) < split_layers_ttft_ms(below, 100)
    assert split_operators_ttft_ms(above, 100, speed_up) > split_layers_ttft_ms(above, 100)


def test_published_profile_at_a_rate() -> None:
    """512 tokens of OPT-13B, 72.15 ms a prefill, at 5.6 requests/s: 96.6 ms."""
    service_ms = named("distserve-opt-13b-a100-tp1").prefill_ms([Chunk(512, 0)])
    assert service_ms == pytest.approx(72.15, abs=0.005)
    assert service_ms + constant_service_wait_ms(5.6, service_ms) == pytest.approx(96.6, abs=0.05)


@given(st.floats(0, 9.9), st.floats(1, 100))
def test_a_constant_service_waits_half_as_long_as_one_of_exponential_times(rate: float, service_ms: float) -> None:
    """M/M/1 waits R D^2 / (1 - R D); its mean square is 2 D^2."""
    if busy_share(rate, service_ms) >= 0.999:
        return
    exponential = general_service_wait_ms(rate, mean_ms=service_ms, mean_square_ms2=2 * service_ms**2)
    busy = busy_share(rate, service_ms)
    assert exponential == pytest.approx(busy * service_ms / (1 - busy))
    assert constant_service_wait_ms(rate, service_ms) == pytest.approx(exponential / 2)


def test_too_much_work_waits_for_ever() -> None:
    assert constant_service_wait_ms(10, 100) == inf
    assert split_layers_ttft_ms(20, 100) == inf
    assert split_operators_ttft_ms(17, 100, 1.7) == inf
    assert split_layers_ttft_ms(19, 100) < inf


def test_no_load_waits_not_at_all_and_nonsense_is_refused() -> None:
    assert constant_service_wait_ms(0, 100) == 0
    with pytest.raises(ValueError, match="no load"):
        constant_service_wait_ms(-1, 100)
    with pytest.raises(ValueError, match="mean square"):
        general_service_wait_ms(1, mean_ms=100, mean_square_ms2=9_999)
    with pytest.raises(ValueError, match="speed-up"):
        split_operators_ttft_ms(1, 100, 0)


def test_quick_look_adds_up() -> None:
    """1,000 tokens are 100 ms; at 4/s over two workers each is busy for 0.2: wait 0.2 x 100 / (2 x 0.8) = 12.5 ms."""
    found = quick_ttft_ms(FLAT, input_tokens=[1000], request_rate=4, prefill_workers=2, transfer_ms=30)
    assert found == pytest.approx(12.5 + 100 + 30 + 7)


def test_quick_look_of_mixed_lengths_waits_longer_than_of_their_mean() -> None:
    """50 and 150 ms: mean square 12,500; wait = 0.005 x 12,500 / (2 x 0.5) = 62.5 ms, of the mean 50 ms."""
    mixed = quick_ttft_ms(FLAT, input_tokens=[500, 1500], request_rate=5)
    assert mixed == pytest.approx(62.5 + 100 + 7)
    assert quick_ttft_ms(FLAT, input_tokens=[1000], request_rate=5) == pytest.approx(50 + 100 + 7)


def test_quick_look_computes_only_what_is_not_cached() -> None:
    assert quick_ttft_ms(FLAT, input_tokens=[1000], request_rate=0, cached_prefix_tokens=800) == pytest.approx(27)
    assert quick_ttft_ms(FLAT, input_tokens=[500], request_rate=0, cached_prefix_tokens=800) == pytest.approx(7.1)
    with pytest.raises(ValueError, match="at least one"):
        quick_ttft_ms(FLAT, input_tokens=[], request_rate=1)
