"""Legs that fail, workers that are restarted or leave: the client gets its answer, or one clean error."""

import asyncio

import pytest

from hpcserve.nouns import Role
from tests.router.fake_engine import Behaviour, Call, FakeEngine, prompt_of, tokens_of
from tests.router.faults import BODY, CHAT, RIGHT, after, content_of, fail_500, fail_in_the_stream, hang, hang_up, on
from tests.router.rig import Rig


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


def test_workers_that_stand_still_use_up_no_try() -> None:
    async def run() -> None:
        engines = [FakeEngine(Role.AGGREGATED, number) for number in range(4)]
        async with Rig(*engines) as rig:
            stood: list[str] = []

            async def stand_still(call: Call, writer: asyncio.StreamWriter) -> bool:
                if len(stood) == 3:
                    return False
                stood.append(call.worker)
                [endpoint] = [engine.endpoint for engine in engines if engine.id == call.worker]
                asyncio.get_running_loop().call_soon(rig.pools.break_off, endpoint, "it stands still")
                return await hang(call, writer)

            for engine in engines:
                engine.behave = stand_still
            answer = await asyncio.wait_for(rig.ask("/v1/completions", BODY), 5)
            assert answer.text == RIGHT
            assert len(set(stood)) == 3
            await rig.settle()

    asyncio.run(run())


@pytest.mark.parametrize("act", [fail_500, hang_up])
def test_two_workers_that_break_under_a_request_are_enough(act: Behaviour) -> None:
    async def run() -> None:
        engines = [FakeEngine(Role.AGGREGATED, number) for number in range(4)]
        async with Rig(*engines) as rig:
            for engine in engines:
                engine.behave = act
            assert (await rig.ask("/v1/completions", BODY)).status == 502
            assert sum(len(engine.calls) for engine in engines) == 2

    asyncio.run(run())


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


def test_what_a_prefill_worker_kept_before_it_began_anew_is_not_waited_for() -> None:
    """Another engine may have its address by now: what the decode worker reads there is not this prompt's KV."""

    async def run() -> None:
        async with Rig() as rig:
            prefill, decode = rig.engines
            sent = asyncio.Event()

            async def never(call: Call, writer: asyncio.StreamWriter) -> bool:
                sent.set()
                return await hang(call, writer)

            decode.behave = on("decode", never)
            asked = asyncio.create_task(rig.ask("/v1/completions", BODY))
            await asyncio.wait_for(sent.wait(), 5)
            prefill.generation = "g2"
            rig.see()
            answer = await asyncio.wait_for(asked, 5)
            assert answer.text == RIGHT
            assert decode.legs() == ["decode", "whole"]
            assert decode.calls[0].closed_early
            assert rig.desk.metrics.retries == {"prefill_replaced": 1}
            await rig.settle()

    asyncio.run(run())


def test_a_draining_worker_gets_nothing_new_and_ends_what_it_has_even_when_withdrawn() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.PREFILL), FakeEngine(Role.DECODE, 0), FakeEngine(Role.DECODE, 1)) as rig:
            leaving, gate = rig.engines[1], asyncio.Event()

            for decode in rig.engines[1:]:
                decode.behave = after(gate)
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
