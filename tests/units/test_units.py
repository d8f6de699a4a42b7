import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve import units


def test_rates_convert_between_bits_and_bytes() -> None:
    assert units.gb_per_s_from_gbit_per_s(400) == 50
    assert units.gb_per_s_from_mbit_per_s(1000) == 0.125
    assert units.gbit_per_s(50) == 400


def test_a_transfer_takes_bytes_over_rate() -> None:
    # 512 tokens of SmolLM2-135M at 956 Mbit/s
    assert units.transfer_ms(size_bytes=512 * 23_040, gb_per_s=0.1195) == pytest.approx(98.7, abs=0.1)


@given(st.floats(max_value=0, allow_nan=False))
def test_a_rate_that_is_not_positive_moves_nothing(rate: float) -> None:
    with pytest.raises(ValueError, match="moves nothing"):
        units.transfer_ms(size_bytes=1, gb_per_s=rate)


@pytest.mark.parametrize(
    ("text", "seconds"), [("0:00:01", 1), ("1:30:00", 5400), ("2-00:00:00", 172_800), ("1-02:03:04", 93_784)]
)
def test_a_time_limit_in_seconds(text: str, seconds: int) -> None:
    assert units.duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "90", "1:00", "1:00:00\n", "-1:00:00", "\u0661:00:00", "1-1-1:00:00"])
def test_what_is_no_time_limit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        units.duration_s(text)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0.0"), (0.0312, "0.031"), (0.96, "0.96"), (1, "1.0"), (98.74, "98.7"), (5120, "5120.0")],
)
def test_milliseconds_never_round_to_nothing(milliseconds: float, text: str) -> None:
    assert units.ms_text(milliseconds) == text
