"""The lease rule in the router: what comes too late is dropped and made anew, what may take its time is not."""

import asyncio
import time
from typing import Any

from hpcserve.nouns import Role
from hpcserve.router.desk import Limits
from tests.router.fake_engine import Call, FakeEngine, begin_stream, chunk, events_of, prompt_of, tokens_of
from tests.router.faults import BODY, CHAT, RIGHT, ROLE, content_of, fail_500, hang, on
from tests.router.rig import Rig


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
        async def late(_call: Call, _writer: asyncio.StreamWriter) -> bool:
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

                async def slow(_call: Call, _writer: asyncio.StreamWriter) -> bool:
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

                async def slow(_call: Call, _writer: asyncio.StreamWriter) -> bool:
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
