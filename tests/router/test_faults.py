import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from hpcserve.discovery import Snapshot
from hpcserve.nouns import Role
from hpcserve.router import watching
from hpcserve.router.desk import Limits
from hpcserve.router.stalls import Stalls
from tests.router.fakes import (
    Behaviour,
    Call,
    FakeEngine,
    Rig,
    begin_stream,
    chunk,
    event,
    events_of,
    prompt_of,
    send,
    tokens_of,
)

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


async def fail_500(call: Call, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG001 - a behaviour
    await send(writer, 500, json.dumps(ERROR).encode())
    return True


async def hang_up(call: Call, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG001 - a behaviour
    writer.close()
    return True


async def hang(call: Call, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG001 - a behaviour
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


@pytest.mark.parametrize("act", [fail_500, hang_up, fail_in_the_stream])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_failed_handoff_is_seen_by_nobody(act: Behaviour, stream: bool, path: str) -> None:
    if act is fail_in_the_stream and not stream:
        return
    body = BODY if path == "/v1/completions" else CHAT

    async def run() -> None:
        async with Rig(FakeEngine(Role.PREFILL), FakeEngine(Role.DECODE)) as rig:
            prefill, decode = rig.engines
            decode.behave = on("decode", act)
            answer = await rig.ask(path, body | {"stream": stream})
            assert answer.status == 200
            right = "".join(tokens_of(prompt_of(body), 3))
            assert (content_of(answer.events) if stream else answer.text) == right
            assert answer.whole
            served = [*decode.legs(), *prefill.legs()]
            assert served.count("whole") == 1
            assert sum(rig.desk.metrics.retries.values()) == 1
            assert sum(rig.desk.metrics.whole.values()) == 1
            await rig.settle()

    asyncio.run(run())


def test_a_failed_prefill_goes_to_another_prefill_worker() -> None:
    async def run(act: Behaviour) -> None:
        async with Rig(FakeEngine(Role.PREFILL, 0), FakeEngine(Role.PREFILL, 1), FakeEngine(Role.DECODE)) as rig:
            first, second, decode = rig.engines
            first.behave = second.behave = None
            for engine in (first, second):
                engine.behave = act if engine is first else None
            for _ in range(2):  # whichever is tried first
                answer = await rig.ask("/v1/completions", BODY)
                assert answer.text == RIGHT
            assert decode.legs() == ["decode", "decode"]
            assert second.legs() == ["prefill", "prefill"]
            await rig.settle()

    asyncio.run(run(fail_500))
    asyncio.run(run(hang_up))


def test_without_a_prefill_worker_a_decode_worker_serves_whole() -> None:
    async def run() -> None:
        async with Rig() as rig:
            prefill, decode = rig.engines
            await prefill.stop()
            assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
            assert decode.legs() == ["whole"]
            assert rig.desk.metrics.retries == {"prefill_connection": 1}
            # left out from now on: no further try at it
            assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
            assert rig.desk.metrics.retries == {"prefill_connection": 1}
            # until it says that it is well
            await prefill.start(prefill.port)
            assert rig.desk.roster.probed(prefill.endpoint, well=True)
            assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
            assert decode.legs() == ["whole", "whole", "decode"]

    asyncio.run(run())


def test_when_all_fail_the_client_gets_one_clean_error() -> None:
    async def run(stream: bool) -> None:
        async with Rig() as rig:
            for engine in rig.engines:
                engine.behave = fail_500
            answer = await rig.ask("/v1/completions", BODY | {"stream": stream})
            assert answer.status == 502
            assert answer.error["code"] == "worker_failed"
            assert sum(len(engine.calls) for engine in rig.engines) <= 4
            await rig.settle()

    asyncio.run(run(stream=False))
    asyncio.run(run(stream=True))


def test_a_worker_that_answers_500_is_left_out_after_three() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED)) as rig:
            engine = rig.engines[0]
            engine.behave = fail_500
            statuses = [(await rig.ask("/v1/completions", BODY)).status for _ in range(5)]
            assert statuses == [502, 502, 502, 503, 503]
            assert len(engine.calls) == 3

    asyncio.run(run())


def test_a_pair_whose_handoffs_fail_must_be_proved_again() -> None:
    async def run() -> None:
        async with Rig() as rig:
            decode = rig.engines[1]
            decode.behave = on("decode", fail_500)
            for _ in range(4):
                assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
            assert decode.legs().count("decode") == 3
            assert rig.desk.metrics.whole["no_pair"] == 1
            decode.behave = None
            _, finding = await rig.prove_next()
            assert finding.outcome == "proved"
            await rig.ask("/v1/completions", BODY)
            assert decode.legs()[-1] == "decode"

    asyncio.run(run())


class TestLease:
    LIMITS = Limits(handoff_s=0.25)

    def test_a_decode_leg_that_hangs_is_dropped_and_prefilled_again(self) -> None:
        async def run(stream: bool) -> None:
            engines = [FakeEngine(Role.PREFILL), FakeEngine(Role.DECODE, 0), FakeEngine(Role.DECODE, 1)]
            near = {("prefill-0", "decode-0"): 1.0, ("prefill-0", "decode-1"): 900.0}
            async with Rig(*engines, limits=self.LIMITS, transfer_ms=near) as rig:
                prefill, hanging, well = rig.engines
                hanging.behave = on("decode", hang)
                hanging.waiting = 1
                start_s = time.monotonic()
                answer = await rig.ask("/v1/completions", BODY | {"stream": stream})
                assert 0.25 * (1.0 if stream else 1.5) <= time.monotonic() - start_s < 2.5
                assert (content_of(answer.events) if stream else answer.text) == RIGHT
                assert prefill.legs() == ["prefill", "prefill"]
                assert (hanging.legs(), well.legs()) == (["decode"], ["decode"])
                assert hanging.calls[0].closed_early
                assert rig.desk.metrics.lease_drops == 1
                await rig.settle()

        asyncio.run(run(stream=True))
        asyncio.run(run(stream=False))

    def test_a_late_200_is_dropped_too(self) -> None:
        async def late(call: Call, writer: asyncio.StreamWriter) -> bool:
            begin_stream(writer)
            if "chat" in call.path:
                writer.write(chunk(ROLE))  # a role is no token
                await writer.drain()
            await asyncio.sleep(0.4)
            for each in events_of([" foreign"], chat="chat" in call.path):
                writer.write(chunk(each))
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True

        async def run(path: str, body: dict[str, Any]) -> None:
            # a sweep too slow to see it: the late token itself must be refused
            for sweep_s in (0.02, 5.0):
                async with Rig(limits=self.LIMITS, sweep_s=sweep_s) as rig:
                    rig.engines[1].behave = on("decode", late)
                    answer = await rig.ask(path, body | {"stream": True})
                    assert content_of(answer.events) == "".join(tokens_of(prompt_of(body), 3))
                    assert rig.desk.metrics.lease_drops == 1
                    assert rig.engines[0].legs() == ["prefill", "whole"]

        asyncio.run(run("/v1/completions", BODY))
        asyncio.run(run("/v1/chat/completions", CHAT))

    def test_without_the_rule_the_late_answer_is_passed_on(self) -> None:
        async def late(call: Call, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG001 - a behaviour
            await asyncio.sleep(0.4)
            return False

        async def run() -> None:
            async with Rig(limits=Limits(handoff_s=None)) as rig:
                rig.engines[1].behave = on("decode", late)
                assert (await rig.ask("/v1/completions", BODY | {"stream": True})).status == 200
                assert rig.desk.metrics.lease_drops == 0

        asyncio.run(run())

    def test_a_long_answer_that_is_not_streamed_may_take_its_time_once_its_kv_is_there(self) -> None:
        async def run() -> None:
            async with Rig(limits=self.LIMITS) as rig:
                decode = rig.engines[1]
                decode.running = 1

                async def slow(call: Call, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG001 - a behaviour
                    for _ in range(80):
                        await asyncio.sleep(0.01)
                        decode.generated += 1
                    return False

                decode.behave = on("decode", slow)
                answer = await rig.ask("/v1/completions", BODY)
                assert answer.text == RIGHT
                assert rig.desk.metrics.lease_drops == 0
                assert decode.legs() == ["decode"]
                await rig.settle()

        asyncio.run(run())

    def test_the_kv_of_a_long_answer_is_seen_in_a_moment_when_nobody_waits(self) -> None:
        async def run() -> None:
            async with Rig(limits=Limits(handoff_s=1.0)) as rig:
                decode = rig.engines[1]
                until_s = time.monotonic() + 2.0

                async def slow(call: Call, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG001 - a behaviour
                    while (left_s := until_s - time.monotonic()) > 0:
                        decode.waiting = 0 if 0.8 < left_s < 1.4 else 3  # other requests, at all times but one
                        await asyncio.sleep(0.01)
                        decode.generated += 1
                    return False

                decode.behave = on("decode", slow)
                answers = await asyncio.gather(*(rig.ask("/v1/completions", BODY) for _ in range(5)))
                assert {answer.text for answer in answers} == {RIGHT}
                assert rig.desk.metrics.lease_drops == 0
                assert decode.legs() == ["decode"] * 5
                assert decode.looks < 60, "one reading is for all"
                await rig.settle()

        asyncio.run(run())

    def test_who_came_late_is_asked_again_before_nobody_is(self) -> None:
        async def run() -> None:
            async with Rig(limits=self.LIMITS) as rig:
                prefill, decode = rig.engines
                decode.behave = on("decode", hang)
                prefill.behave = on("whole", fail_500)
                answer = await rig.ask("/v1/completions", BODY | {"stream": True})
                assert content_of(answer.events) == RIGHT
                assert prefill.legs() == ["prefill", "whole"]
                assert decode.legs() == ["decode", "whole"]
                await rig.settle()

        asyncio.run(run())

    def test_a_worker_that_stands_still_does_not_pass_for_one_that_computes(self) -> None:
        async def run() -> None:
            async with Rig(limits=self.LIMITS) as rig:
                decode = rig.engines[1]
                decode.running = 1  # but no token comes
                decode.behave = on("decode", hang)
                assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
                assert rig.desk.metrics.lease_drops == 1
                await rig.settle()

        asyncio.run(run())


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
        async def breaks(call: Call, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG001 - a behaviour
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


def test_a_worker_with_a_new_generation_gets_new_connections_and_proofs() -> None:
    async def run() -> None:
        async with Rig() as rig:
            decode = rig.engines[1]
            await rig.ask("/v1/completions", BODY)
            assert decode.open == 1
            decode.generation = "g2"
            rig.see()
            await asyncio.sleep(0.05)
            assert decode.open == 0
            assert rig.state().proofs == ()
            answer = await rig.ask("/v1/completions", BODY)
            assert answer.text == RIGHT
            assert decode.legs() == ["decode", "whole"]
            assert decode.accepted == 2
            rig.prove_all()
            await rig.ask("/v1/completions", BODY)
            assert decode.legs()[-1] == "decode"

    asyncio.run(run())


def test_a_draining_worker_gets_nothing_new_and_ends_what_it_has_even_when_withdrawn() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.PREFILL), FakeEngine(Role.DECODE, 0), FakeEngine(Role.DECODE, 1)) as rig:
            leaving, gate = rig.engines[1], asyncio.Event()

            async def slow(call: Call, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG001 - a behaviour
                await gate.wait()
                return False

            for decode in rig.engines[1:]:
                decode.behave = slow
            old = [await rig.connect() for _ in range(4)]
            for client in old:
                await client.post("/v1/completions", BODY | {"stream": True})
            await asyncio.sleep(0.1)
            had = len(leaving.calls)
            assert had
            leaving.facts["draining"] = True
            rig.see()
            new = [asyncio.create_task(rig.ask("/v1/completions", BODY)) for _ in range(4)]
            await asyncio.sleep(0.1)
            rig.engines.remove(leaving)
            rig.see()
            gate.set()
            for client in old:
                answer = await client.answer()
                assert answer.whole
                assert content_of(answer.events) == RIGHT
            assert [(await task).headers["x-hpcserve-route"] for task in new] == ["prefill-0>decode-1"] * 4
            assert len(leaving.calls) == had
            await asyncio.sleep(0.05)
            assert leaving.open == 0
            await rig.settle()

    asyncio.run(run())


def test_a_stale_connection_never_sends_a_handoff_twice() -> None:
    async def run() -> None:
        async with Rig() as rig:
            prefill, decode = rig.engines
            await rig.ask("/v1/completions", BODY)
            decode.behave = on("decode", hang_up)
            answer = await rig.ask("/v1/completions", BODY)
            assert answer.text == RIGHT
            assert decode.legs().count("decode") == 2
            assert prefill.legs()[-1] == "whole"

    asyncio.run(run())


def test_a_slow_client_slows_the_engine_down() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED)) as rig:
            engine = rig.engines[0]
            written = 0

            async def flood(call: Call, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG001 - a behaviour
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


@pytest.mark.parametrize("leg", ["prefill", "decode"])
def test_an_engine_that_stands_still_behind_a_healthy_server_is_given_up(leg: str) -> None:
    async def run() -> None:
        async with Rig() as rig:
            hanging = rig.engines[0 if leg == "prefill" else 1]
            hanging.behave = on(leg, hang)
            clock_s = 0.0
            rig.desk.now_s = lambda: clock_s
            stalls = Stalls(rig.desk, rig.counters)
            client = await rig.connect()
            await client.post("/v1/completions", BODY)
            await asyncio.sleep(0.1)
            for _ in range(2):
                await stalls.look()
                clock_s += 599.0
                hanging.generated += 1  # slow, but not still
            assert len(hanging.calls) == 1
            await stalls.look()
            clock_s += 599.0
            await stalls.look()
            assert rig.state().waiting_for == ()
            clock_s += 1.0
            await stalls.look()
            answer = await asyncio.wait_for(client.answer(), 5)
            assert answer.text == RIGHT
            assert rig.state().waiting_for == (f"{hanging.id}: its engine stands still",)
            rig.desk.roster.probed(hanging.endpoint, well=True)
            assert rig.state().waiting_for, "its /health always was well"
            had = len(hanging.calls)
            assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
            assert len(hanging.calls) == had
            hanging.generated += 1
            await stalls.look()
            assert rig.state().waiting_for == ()
            await rig.settle()

    asyncio.run(run())


def test_a_worker_that_hangs_keeps_no_other_from_coming_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watching, "_HEALTH_S", 0.05)

    async def run() -> None:
        hanging, other = FakeEngine(Role.AGGREGATED, 0), FakeEngine(Role.AGGREGATED, 1)
        hanging.silent_s = 60.0
        async with Rig(hanging, other) as rig:
            watcher = watching.Watcher(
                rig.desk,
                look=lambda: Snapshot(endpoints=(hanging.endpoint, other.endpoint), warnings=()),
                prover=rig.prover,
                stalls=Stalls(rig.desk, rig.counters),
                sessions=rig.sessions,
                state_path=tmp_path / "router.state.json",
            )
            task = asyncio.create_task(watcher.run())
            await asyncio.sleep(0.2)
            for _ in range(2):
                rig.desk.roster.unreachable(other.endpoint)
                assert rig.state().waiting_for == ("aggregated-1: does not answer",)
                await asyncio.sleep(0.5)
                assert rig.state().waiting_for == ()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_a_worker_that_hangs_is_given_up_and_one_that_blinks_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_HEALTH_TIMEOUT_S", 0.05)
    monkeypatch.setattr(watching, "_UNRESPONSIVE_S", 0.3)
    monkeypatch.setattr(watching, "_HEALTH_S", 0.05)

    async def run(tmp_path: Path) -> None:
        engine = FakeEngine(Role.AGGREGATED)
        async with Rig(engine) as rig:
            watcher = watching.Watcher(
                rig.desk,
                look=lambda: Snapshot(endpoints=(engine.endpoint,), warnings=()),
                prover=rig.prover,
                stalls=Stalls(rig.desk, rig.counters),
                sessions=rig.sessions,
                state_path=tmp_path / "router.state.json",
            )
            task = asyncio.create_task(watcher.run())

            async def stall(call: Call, writer: asyncio.StreamWriter) -> bool:  # noqa: ARG001 - a behaviour
                begin_stream(writer)
                writer.write(chunk(event({"choices": [{"index": 0, "text": " a"}]})))
                await writer.drain()
                await asyncio.sleep(60)
                return True

            engine.behave = stall
            client = await rig.connect()
            await client.post("/v1/completions", BODY | {"stream": True})
            await asyncio.sleep(0.15)
            engine.silent_s = 0.1  # slower than one look may take, but not for long
            await asyncio.sleep(0.15)
            engine.silent_s = 0.0
            await asyncio.sleep(0.2)
            assert rig.desk.metrics.in_flight == 1
            assert rig.state().waiting_for == ()
            engine.silent_s = 60.0
            answer = await asyncio.wait_for(client.answer(), 5)
            assert not answer.whole
            assert b"worker_lost" in answer.events[-1]
            assert rig.state().waiting_for == ("aggregated-0: does not answer",)
            engine.silent_s = 0.0
            engine.behave = None
            await asyncio.sleep(0.2)
            assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await rig.settle()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))
