"""What goes wrong in an engine, and what is asked and answered meanwhile."""

import asyncio
import json
from typing import Any

from tests.router.fake_engine import Behaviour, Call, begin_stream, chunk, event, prompt_of, send, tokens_of

BODY: dict[str, Any] = {"model": "tiny", "prompt": "The longest river is", "max_tokens": 3}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "Name three rivers."}],
    "max_tokens": 3,
}
RIGHT = "".join(tokens_of(prompt_of(BODY), 3))
ERROR = {"error": {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}}
ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})


def on(leg: str, act: Behaviour) -> Behaviour:
    async def behave(call: Call, writer: asyncio.StreamWriter) -> bool:
        return call.leg == leg and await act(call, writer)

    return behave


def after(gate: asyncio.Event) -> Behaviour:
    """As always, but not before the gate is open."""

    async def behave(_call: Call, _writer: asyncio.StreamWriter) -> bool:
        await gate.wait()
        return False

    return behave


async def fail_500(_call: Call, writer: asyncio.StreamWriter) -> bool:
    await send(writer, 500, json.dumps(ERROR).encode())
    return True


async def hang_up(_call: Call, writer: asyncio.StreamWriter) -> bool:
    writer.close()
    return True


async def hang(_call: Call, _writer: asyncio.StreamWriter) -> bool:
    await asyncio.sleep(60)
    return True


async def fail_in_the_stream(call: Call, writer: asyncio.StreamWriter) -> bool:
    begin_stream(writer)
    if "chat" in call.path:
        writer.write(chunk(ROLE))
        await writer.drain()
        await asyncio.sleep(0.02)
    writer.write(chunk(event(ERROR)) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    await writer.drain()
    return True


def content_of(events: list[bytes]) -> str:
    found = ""
    for each in events:
        text = each.removeprefix(b"data: ")
        if text != b"[DONE]":
            for choice in json.loads(text)["choices"]:
                found += choice["text"] if "text" in choice else choice["delta"].get("content", "")
    return found
