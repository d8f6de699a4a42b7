"""Clients that do not take their answers: nothing is begun for them, kept for them without limit, or kept for ever."""

import asyncio
import socket

import pytest

from hpcserve.nouns import Role
from hpcserve.router.desk import Limits
from tests.router.client import request
from tests.router.fake_engine import Call, FakeEngine, begin_stream, chunk, event
from tests.router.faults import BODY, RIGHT, after
from tests.router.rig import Rig

STREAM = BODY | {"stream": True}
BIG = b"x" * (8 << 20)
KEPT_AT_MOST_BYTES = 1 << 20


async def big_answer(call: Call, writer: asyncio.StreamWriter) -> bool:
    if call.leg == "prefill" or call.body.get("stream"):
        return False
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BIG) + BIG)
    await writer.drain()
    return True


def lazy_client(rig: Rig) -> socket.socket:
    """One that reads only when the test does."""
    line = socket.create_connection(("127.0.0.1", rig.port))
    line.setblocking(False)
    return line


async def read_all(line: socket.socket, until: bytes) -> bytes:
    loop, found = asyncio.get_running_loop(), bytearray()
    async with asyncio.timeout(10):
        while until not in found[-100:]:
            found += await loop.sock_recv(line, 1 << 20)
    return bytes(found)


def kept_bytes(rig: Rig) -> int:
    (session,) = rig.sessions
    assert session._transport is not None
    return session._transport.get_write_buffer_size()


def test_the_next_request_is_not_begun_before_the_client_takes_the_last_answer() -> None:
    """Its KV would wait at the prefill worker, with its lease running, for as long as the client likes."""

    async def run() -> None:
        async with Rig(limits=Limits(handoff_s=5.0)) as rig:
            prefill, decode = rig.engines
            decode.behave = big_answer
            with lazy_client(rig) as line:
                line.sendall(request("POST", "/v1/completions", BODY) + request("POST", "/v1/completions", STREAM))
                await asyncio.sleep(0.5)
                assert (prefill.legs(), decode.legs()) == (["prefill"], ["decode"])
                answers = await read_all(line, b"[DONE]\n\n\r\n0\r\n\r\n")
                assert answers.count(BIG) == 1
                assert answers.count(b"HTTP/1.1 200") == 2
                assert (prefill.legs(), decode.legs()) == (["prefill"] * 2, ["decode"] * 2)
            await rig.settle()

    asyncio.run(run())


def test_a_leg_whose_answer_the_client_has_nothing_of_yet_is_read_though_the_client_is_slow() -> None:
    async def run() -> None:
        async with Rig() as rig:
            hold = asyncio.Event()
            rig.engines[0].behave = after(hold)
            client = await rig.connect()
            await client.post("/v1/completions", BODY)
            await asyncio.sleep(0.1)
            (session,) = rig.sessions
            session.pause_writing()  # by what it was sent before
            hold.set()
            assert (await asyncio.wait_for(client.answer(), 2)).text == RIGHT

    asyncio.run(run())


def test_who_sends_without_reading_is_not_read_on_and_its_answers_are_not_heaped_up() -> None:
    async def run() -> None:
        async with Rig() as rig:
            with lazy_client(rig) as line:
                sent = 0
                for _ in range(400):
                    try:
                        sent += line.send(b"GET /nothing HTTP/1.1\r\n\r\n" * 4000)
                    except BlockingIOError:
                        await asyncio.sleep(0.001)
                    await asyncio.sleep(0)
                assert kept_bytes(rig) < KEPT_AT_MOST_BYTES
            assert (await rig.ask("/health")).status == 200

    asyncio.run(run())


def test_who_takes_nothing_is_broken_off_in_a_stream_and_at_the_end() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED), limits=Limits(connection_idle_s=0.4)) as rig:
            engine = rig.engines[0]

            async def endless(call: Call, writer: asyncio.StreamWriter) -> bool:
                if not call.body.get("stream"):
                    return await big_answer(call, writer)
                begin_stream(writer)
                while not writer.is_closing():
                    writer.write(chunk(event({"choices": [{"index": 0, "text": "x" * 100_000}]})))
                    await writer.drain()
                return True

            engine.behave = endless
            with lazy_client(rig) as streaming, lazy_client(rig) as ending:
                streaming.sendall(request("POST", "/v1/completions", STREAM))
                ending.sendall(request("POST", "/v1/completions", BODY, Connection="close"))
                await asyncio.sleep(0.2)
                assert len(rig.sessions) == 2
                for _ in range(200):
                    if not rig.sessions:
                        break
                    await asyncio.sleep(0.05)
                assert not rig.sessions
            await rig.settle()
            assert rig.desk.metrics.abandoned["whole"] == 1

    asyncio.run(run())


def test_a_connection_to_an_engine_does_not_stay_unread_after_a_slow_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED)) as rig:
            engine = rig.engines[0]
            more = asyncio.Event()

            async def stream(call: Call, writer: asyncio.StreamWriter) -> bool:
                if not call.body.get("stream"):
                    return False
                begin_stream(writer)
                writer.write(chunk(event({"choices": [{"index": 0, "text": "x"}]})))
                await more.wait()
                writer.write(chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
                return True

            engine.behave = stream
            client = await rig.connect()
            await client.post("/v1/completions", STREAM)
            await client.reader.readuntil(b"\n\n")
            (session,) = rig.sessions
            write = session.write

            def write_and_be_full(data: bytes) -> None:
                write(data)
                session.pause_writing()

            monkeypatch.setattr(session, "write", write_and_be_full)
            more.set()
            await client.reader.readuntil(b"0\r\n\r\n")
            assert not session.busy
            assert (await rig.ask("/v1/completions", BODY)).status == 200
            assert engine.accepted == 1

    asyncio.run(run())
