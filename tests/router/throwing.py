"""Throws one `Input` at a router and says what was wrong with what came back; empty where nothing was."""

import asyncio
import json
import socket
import struct
import time

from tests.router.fake_engine import prompt_of, tokens_of
from tests.router.faults import content_of
from tests.router.mangle import Input
from tests.router.responses import BadResponseError, Response, Responses, take_apart

_QUIET_S = 0.06
_END_S = 60.0
"""For what the router does at once: the next byte of an answer, closing when the client has closed."""
LONGEST_HOLD_S = 100.0
"""A head may take 30 s, a body may pause for 60 s, an idle connection is closed after 75 s."""


async def throw(port: int, thrown: Input) -> str:
    """What was wrong, with the input that shows it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        wrong = await _throw(reader, writer, thrown)
    except TimeoutError:
        wrong = "it neither answered nor closed"
    except BadResponseError as error:
        wrong = str(error)
    finally:
        writer.transport.abort()
    return f"{wrong}\n  {thrown}" if wrong else ""


async def _throw(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, thrown: Input) -> str:
    received = bytearray()
    reading = asyncio.create_task(_read(reader, received))
    try:
        await _write(writer, thrown)
        if thrown.end == "reset":
            if not writer.is_closing():
                line: socket.socket = writer.get_extra_info("socket")
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return ""
        if thrown.end == "hold":
            await asyncio.wait_for(reading, LONGEST_HOLD_S)
        else:
            await _until_answered(received, reading, thrown)
            if not reading.done() and writer.can_write_eof() and not writer.is_closing():
                writer.write_eof()
            await asyncio.wait_for(reading, _END_S)
    finally:
        reading.cancel()
    return _compared(take_apart(bytes(received)), thrown)


async def _read(reader: asyncio.StreamReader, received: bytearray) -> None:
    try:
        while data := await reader.read(1 << 16):
            received += data
    except ConnectionError:
        pass  # it broke off: with bytes of ours unread the kernel says so with a reset


async def _write(writer: asyncio.StreamWriter, thrown: Input) -> None:
    try:
        for piece in thrown.pieces:
            writer.write(piece)
            await asyncio.wait_for(writer.drain(), _END_S)
            await asyncio.sleep(thrown.pause_s)
    except ConnectionError:
        pass  # it has answered and closed


async def _until_answered(received: bytearray, reading: asyncio.Task[None], thrown: Input) -> None:
    """Until all that must come has come, and nothing more for a moment."""
    end_s, size = 0.0, -1
    while not reading.done() and thrown.end == "wait":
        if len(received) == size and len(_answers(bytes(received), thrown)) >= len(thrown.prompts):
            return
        if len(received) > size:
            end_s = time.monotonic() + _END_S
        elif time.monotonic() > end_s:
            raise TimeoutError
        size = len(received)
        await asyncio.wait((reading,), timeout=_QUIET_S)


def _answers(received: bytes, thrown: Input) -> list[Response]:
    return [response for response in take_apart(received).found if response.whole] if thrown.prompts else []


def _compared(responses: Responses, thrown: Input) -> str:
    found = responses.found
    for (prompt, count, stream), response in zip(thrown.prompts, found, strict=False):
        right = "".join(tokens_of(prompt_of({"prompt": prompt}), count))
        if response.status != 200 or said_in(response, stream=stream) != right:
            return f"{response.status} {response.body[:300]!r}, where {right!r} was right"
    if len(found) < len(thrown.prompts):
        return f"{len(found)} answers to {len(thrown.prompts)} good requests"
    if thrown.alone and len(found) > len(thrown.prompts):
        return f"answers to nothing: {responses.statuses}"
    return ""


def said_in(response: Response, *, stream: bool) -> str:
    """The text of a completion."""
    if not stream:
        return str(json.loads(response.body)["choices"][0]["text"])
    return content_of([event for event in response.body.split(b"\n\n") if event])
