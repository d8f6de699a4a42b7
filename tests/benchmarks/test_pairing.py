"""The table of pairing by the fabric beside taking turns."""

import asyncio

import httpx
import pytest

from benchmarks.pairing.__main__ import Answered, NoTokenError, Way, first_token, ratios, row


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


def test_a_run_in_which_a_request_got_no_token_is_invalid_and_has_no_ratio() -> None:
    answered = [Answered(ttft_ms=100.0, decode="decode-0"), Answered(failed="status 503")]
    found = row(answered, way="router", rate=1.0, number=0)
    assert found == {
        "way": "router",
        "rate": 1.0,
        "round": 0,
        "n": 2,
        "invalid": "1 of 2 requests got no token",
        "instead": {"status 503": 1},
    }
    fine = [Answered(ttft_ms=100.0, decode="decode-0")] * 2
    assert ratios([found, row(fine, way="turns", rate=1.0, number=0)]) == {}
    assert ratios([row(fine, way="router", rate=1.0, number=0), found | {"way": "turns"}]) == {}


@pytest.mark.parametrize(
    ("status", "text", "instead"),
    [
        (200, b'data: {"choices":[{"text":" a"}]}\n\ndata: [DONE]\n\n', ""),
        (200, b'data: {"choices":[{"text":""}]}\n\ndata: {"choices":[]}\n\ndata: [DONE]\n\n', "without text"),
        (200, b"", "without text"),
        (200, b'data: {"choices":[{"text":" a"}]}\n\ndata: {"error":{"code":500}}\n\n', "an error in the stream"),
        (503, b"{}", "status 503"),
    ],
)
def test_a_first_token_is_text_and_not_any_bytes(status: int, text: bytes, instead: str) -> None:
    async def ask() -> tuple[float, str]:
        def answer(_: httpx.Request) -> httpx.Response:
            return httpx.Response(status, content=text, headers={"x-hpcserve-route": "prefill-0>decode-1"})

        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            return await first_token(client, "http://here", "key", b"{}")

    if instead:
        with pytest.raises(NoTokenError, match=instead):
            asyncio.run(ask())
    else:
        first_s, route = asyncio.run(ask())
        assert (first_s > 0.0, route) == (True, "prefill-0>decode-1")
