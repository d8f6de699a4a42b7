"""When a stream has begun, when it has failed, and when that is still to be seen; in whatever pieces it comes."""

import json
from typing import Any

import pytest

from hpcserve.router.first_token import FirstToken, StreamStart


def event(content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


ROLE = event({"choices": [{"delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
ERROR = event({"error": {"message": "Internal server error", "code": 500}})


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (event({"choices": [{"text": " a"}]}), FirstToken.CAME),
        (event({"choices": [{"text": ""}]}), FirstToken.CAME),
        (ROLE, FirstToken.PENDING),
        (ROLE + event({"choices": [{"delta": {"content": "a"}}]}), FirstToken.CAME),
        (ROLE + event({"choices": [{"delta": {"role": "assistant", "tool_calls": [1]}}]}), FirstToken.CAME),
        (ROLE + event({"choices": [{"delta": {"role": "assistant"}, "finish_reason": "stop"}]}), FirstToken.CAME),
        (ERROR, FirstToken.FAILED),
        (ROLE + ERROR, FirstToken.FAILED),
        (event({"object": "error", "message": "no"}), FirstToken.FAILED),
        (event({"choices": [{"text": "", "finish_reason": "error"}]}), FirstToken.FAILED),
        (event({"error": None, "choices": [{"text": " a"}]}), FirstToken.CAME),
        (b": ping\n\n", FirstToken.PENDING),
        (b": ping\n\n" + ERROR, FirstToken.FAILED),
        (b"data: [DONE]\n\n", FirstToken.CAME),
        (b"event: odd\ndata: {}\n\n", FirstToken.CAME),
        (b'data: {"choices"', FirstToken.PENDING),
        (b"x" * (1 << 20), FirstToken.PENDING),
        (b"x" * ((1 << 20) + 1), FirstToken.CAME),
    ],
)
@pytest.mark.parametrize("piece_bytes", [7, 1 << 30])
def test_the_beginning_of_a_stream(text: bytes, verdict: FirstToken, piece_bytes: int) -> None:
    start = StreamStart()
    piece_bytes = max(piece_bytes, len(text) // 64)
    found = FirstToken.PENDING
    for begin in range(0, len(text), piece_bytes):
        assert found is FirstToken.PENDING
        found = start.feed(text[begin : begin + piece_bytes])
        if found is not FirstToken.PENDING:
            break
    assert found is verdict
    assert bool(start.message) == (verdict is FirstToken.FAILED)
