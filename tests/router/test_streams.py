"""Streams whose client leaves or is slow, and streams that break."""

import asyncio
import json

import pytest

from hpcserve.nouns import Role
from tests.router.fake_engine import Call, FakeEngine, begin_stream, chunk, event
from tests.router.faults import BODY, CHAT, content_of, hang
from tests.router.rig import Rig


class TestClientLeaves:
    def test_in_mid_stream_the_decode_leg_ends(self) -> None:
        async def run() -> None:
            async with Rig() as rig:
                decode = rig.engines[1]

                async def slow(call: Call, writer: asyncio.StreamWriter) -> bool:
                    await decode.complete(call, writer, every_s=0.02)
                    return True

                decode.behave = slow
                client = await rig.connect()
                await client.post("/v1/chat/completions", CHAT | {"stream": True, "max_tokens": 1000})
                for _ in range(3):
                    await client.reader.readuntil(b"\n\n")
                client.close()
                await asyncio.sleep(0.2)
                assert decode.calls[0].closed_early
                assert rig.desk.metrics.abandoned == {"decode": 1}
                assert not rig.desk.metrics.worker_failures
                assert rig.state().waiting_for == ()
                await rig.settle()

        asyncio.run(run())

    @pytest.mark.parametrize(("role", "leg"), [(Role.PREFILL, "prefill"), (Role.DECODE, "decode")])
    def test_before_the_first_token_the_leg_under_way_ends(self, role: Role, leg: str) -> None:
        async def run() -> None:
            async with Rig() as rig:
                engine = next(each for each in rig.engines if each.role == role)
                engine.behave = hang
                client = await rig.connect()
                await client.post("/v1/completions", BODY | {"stream": True})
                await asyncio.sleep(0.1)
                client.close()
                await asyncio.sleep(0.1)
                assert engine.calls[0].closed_early
                assert rig.desk.metrics.abandoned == {leg: 1}
                assert not rig.desk.metrics.worker_failures
                if role == Role.PREFILL:
                    assert rig.engines[1].calls == []
                await rig.settle()

        asyncio.run(run())


class TestBrokenStream:
    async def _broken(self, data: bytes) -> tuple[list[bytes], bool, Rig]:
        async def breaks(_call: Call, writer: asyncio.StreamWriter) -> bool:
            begin_stream(writer)
            writer.write(chunk(event({"choices": [{"index": 0, "text": " a"}]})))
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0.05)
            writer.close()
            return True

        async with Rig() as rig:
            rig.engines[1].behave = breaks
            client = await rig.connect()
            await client.post("/v1/completions", BODY | {"stream": True})
            answer = await client.answer()
            assert await client.is_closed()
            await rig.settle()
            return answer.events, answer.whole, rig

    def test_between_two_events_it_ends_with_an_error_event(self) -> None:
        events, whole, rig = asyncio.run(self._broken(chunk(event({"choices": [{"index": 0, "text": " b"}]}))))
        assert not whole
        assert json.loads(events[-1].removeprefix(b"data: "))["error"]["code"] == "worker_lost"
        assert content_of(events[:-1]) == " a b"
        assert rig.desk.metrics.requests["disaggregated", "broken"] == 1

    def test_in_the_middle_of_an_event_it_just_ends_and_not_as_if_it_were_whole(self) -> None:
        events, whole, _ = asyncio.run(self._broken(b'50\r\ndata: {"choi'))
        assert not whole
        assert len(events) == 1

    def test_inside_a_chunk_that_holds_what_looks_like_its_end(self) -> None:
        events, whole, _ = asyncio.run(self._broken(b'50\r\ndata: {"b":1}\n\n\r\n'))
        assert not whole
        assert len(events) == 1

    def test_between_chunks_but_inside_an_event(self) -> None:
        events, whole, _ = asyncio.run(self._broken(chunk(b'data: {"choi')))
        assert not whole
        assert events[1:] == [b'data: {"choi']


def test_a_slow_client_slows_the_engine_down() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED)) as rig:
            engine = rig.engines[0]
            written = 0

            async def flood(_call: Call, writer: asyncio.StreamWriter) -> bool:
                nonlocal written
                begin_stream(writer)
                for _ in range(250):
                    writer.write(chunk(event({"choices": [{"index": 0, "text": "x" * 100_000}]})))
                    await writer.drain()
                    written += 1
                writer.write(b"0\r\n\r\n")
                return True

            engine.behave = flood
            client = await rig.connect()
            await client.post("/v1/completions", BODY | {"stream": True})
            await asyncio.sleep(0.5)
            assert written < 240
            answer = await client.answer()
            assert answer.whole
            assert len(answer.events) == 250
            await rig.settle()

    asyncio.run(run())
