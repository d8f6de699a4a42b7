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
