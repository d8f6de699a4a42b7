"""The table of pairing by the fabric beside taking turns."""

from benchmarks.pairing.__main__ import Answered, Way, ratios, row


def test_a_row_tells_times_shares_and_who_served() -> None:
    answered = [Answered(ttft_ms=100.0 * number, decode=f"decode-{number % 2}") for number in range(1, 11)]
    found = row(answered, way="router", rate=2.5, number=0)
    assert (found["n"], found["mean_ms"], found["p50_ms"]) == (10, 550.0, 550.0)
    assert found["within"] == {"300 ms": 0.3, "500 ms": 0.5, "1000 ms": 1.0}
    assert found["decodes"] == {"decode-0": 5, "decode-1": 5}


def test_ratios_are_of_the_same_rate_and_round() -> None:
    def times(factor: float) -> list[Answered]:
        return [Answered(ttft_ms=factor * each, decode="decode-0") for each in (100.0, 200.0, 300.0)]

    factors: dict[Way, float] = {"turns": 2.0, "router": 1.0}
    rows = [
        row(times(factor * (number + 1)), way=way, rate=1.0, number=number)
        for number in range(2)
        for way, factor in factors.items()
    ]
    assert ratios(rows) == {"1/s": {"mean_ms": [0.5, 0.5], "p50_ms": [0.5, 0.5], "p90_ms": [0.5, 0.5]}}
