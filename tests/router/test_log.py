"""What the router writes down of requests."""

import asyncio
import os
from typing import Any

from hpcserve.router.log import Log
from tests.router.fakes import ENGINE_KEY, KEY, Rig, prompt_of, tokens_of

BODY: dict[str, Any] = {"model": "tiny", "prompt": "a secret prompt", "max_tokens": 2}


def test_no_key_no_prompt_and_no_answer_is_in_the_log() -> None:
    async def run(descriptor: int) -> None:
        async with Rig() as rig:
            rig.desk.log = Log(descriptor)
            await rig.ask("/v1/completions?key=sk-in-the-query", BODY)
            rig.engines[0].behave = _refuse
            await rig.ask("/v1/completions", BODY)
            rig.desk.log.flush()

    read, write = os.pipe()
    asyncio.run(run(write))
    os.close(write)
    with os.fdopen(read) as lines:
        text = lines.read()
    assert text.count("request id=") == 2
    assert "target=/v1/completions route" in text
    for secret in (KEY, ENGINE_KEY, "sk-in-the-query", "secret prompt", tokens_of(prompt_of(BODY), 1)[0]):
        assert secret not in text


async def _refuse(call: Any, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 500 No\r\ncontent-length: %d\r\n\r\n" % len(call.raw) + call.raw)
    await writer.drain()
    return True
