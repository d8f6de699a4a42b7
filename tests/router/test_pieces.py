"""Engines' responses in whatever pieces and framing they come: the client's answer is the same."""

import asyncio
import json
from typing import Any

import pytest

from hpcserve.router import pool
from tests.router.fake_engine import Call, FakeEngine, prefill_answer, prompt_of, tokens_of, whole_answer
from tests.router.rig import Rig

BODY: dict[str, Any] = {"model": "tiny", "prompt": "Name a river", "max_tokens": 3}
RIGHT = "".join(tokens_of(prompt_of(BODY), 3))
FRAMINGS = {
    "length": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b",
    "length in capitals": b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH: %d\r\n\r\n%b",
    "interim first": b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b",
    "closing": b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b",
}


def framed(text: bytes, framing: str) -> bytes:
    if framing == "chunked":
        half = len(text) // 2
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (text[:half], text[half:]))
        return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    return FRAMINGS[framing] % (len(text), text)


@pytest.mark.parametrize("framing", [*FRAMINGS, "chunked"])
def test_responses_in_pieces(framing: str) -> None:
    async def run() -> None:
        for size in (1, 40, 100_000):
            async with Rig() as rig:

                def in_pieces(engine: FakeEngine, size: int = size) -> None:
                    async def behave(call: Call, writer: asyncio.StreamWriter) -> bool:
                        said = prefill_answer(call) if call.leg == "prefill" else None
                        found = said or whole_answer(engine.answer_tokens(call), chat=False)
                        data = framed(json.dumps(found).encode(), framing)
                        for place in range(0, len(data), size):
                            writer.write(data[place : place + size])
                            await writer.drain()
                            await asyncio.sleep(0)
                        if framing == "closing":
                            writer.close()
                        return True

                    engine.behave = behave

                for engine in rig.engines:
                    in_pieces(engine)
                client = await rig.connect()
                for _ in range(3):
                    await client.post("/v1/completions", BODY)
                    assert (await client.answer()).text == RIGHT
                assert [engine.legs() for engine in rig.engines] == [["prefill"] * 3, ["decode"] * 3]
                assert {engine.accepted for engine in rig.engines} == {3 if framing == "closing" else 1}
                await rig.settle()

    asyncio.run(run())


def test_what_an_engine_says_unasked_is_no_answer_to_the_next_request() -> None:
    """Bytes behind a whole response: the connection is not used again, and nobody is told them."""

    async def run() -> None:
        async with Rig() as rig:
            decode = rig.engines[1]

            async def twice(call: Call, writer: asyncio.StreamWriter) -> bool:
                text = json.dumps(whole_answer(decode.answer_tokens(call), chat=False)).encode()
                writer.write(framed(text, "length") + framed(b'{"stray": true}', "length"))
                return True

            decode.behave = twice
            for _ in range(3):
                assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
            assert decode.accepted == 3
            await rig.settle()

    asyncio.run(run())


def test_a_connection_that_was_idle_for_too_long_gets_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for them once a second leaves them a second; the engine may close one just then."""
    monkeypatch.setattr(pool, "_KEEP_IDLE_S", 1.0)

    async def run() -> None:
        async with Rig() as rig:  # where nobody tidies
            client = await rig.connect()
            for pause_s, accepted in ((0.0, 1), (1.1, 1), (0.0, 2)):
                await client.post("/v1/completions", BODY)
                assert (await client.answer()).text == RIGHT
                assert {engine.accepted for engine in rig.engines} == {accepted}
                await asyncio.sleep(pause_s)
            assert {engine.open for engine in rig.engines} == {1}

    asyncio.run(run())
