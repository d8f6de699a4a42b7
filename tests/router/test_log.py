"""What the router writes down of requests."""

import asyncio
import os
from typing import Any

from hpcserve.router.log import Log
from tests.router.client import KEY
from tests.router.fake_engine import ENGINE_KEY, prompt_of, tokens_of
from tests.router.rig import Rig

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


def test_a_full_disk_loses_lines_and_no_request() -> None:
    async def run() -> None:
        async with Rig() as rig:
            rig.desk.log = Log(full)
            for number in range(511):  # the line of the request is the one that makes it write
                rig.desk.log.event(f"event {number}")
            assert (await asyncio.wait_for(rig.ask("/v1/completions", BODY), 5)).status == 200
            await rig.settle()
            rig.desk.log.event("x")
            rig.desk.log.flush()

    full = os.open("/dev/full", os.O_WRONLY)
    asyncio.run(run())
    os.close(full)


def test_what_was_lost_is_counted_and_a_torn_line_is_ended() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)  # a full pipe stands for a full disk: a part of the data is written, then none
    os.set_blocking(read, False)
    log = Log(write)
    for text in ("long " + "x" * (1 << 20), "lost"):
        log.event(text)
        log.flush()
    while _read(read):
        pass
    log.event("found")
    log.event("again")
    log.flush()
    log.event("later")
    log.flush()
    begun, *lines = _read(read).decode().splitlines()
    assert begun == ""
    assert [line.partition(" ")[2] for line in lines] == [
        "log: 2 lines could not be written",
        "found",
        "again",
        "later",
    ]
    os.close(write)
    os.close(read)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 20)
    except BlockingIOError:
        return b""


async def _refuse(call: Any, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"HTTP/1.1 500 No\r\ncontent-length: %d\r\n\r\n" % len(call.raw) + call.raw)
    await writer.drain()
    return True
