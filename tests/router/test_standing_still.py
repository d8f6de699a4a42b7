"""Engines that hang, behind a server that answers or with it."""

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcserve.nouns import Role
from hpcserve.router import watching
from hpcserve.router.stalls import Stalls
from hpcserve.routing import Load
from tests.router.fake_engine import Call, FakeEngine, begin_stream, chunk, event
from tests.router.faults import BODY, RIGHT, content_of, hang, on
from tests.router.following import until
from tests.router.rig import Rig


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("leg", "running", "limit_s"), [("prefill", 1, 600), ("decode", 0, 600), ("decode", 1, 60)])
def test_an_engine_that_stands_still_behind_a_healthy_server_is_given_up(
    leg: str, running: int, limit_s: float, stream: bool
) -> None:
    """A prompt may take ten minutes, and KV its time to come; who only decodes makes a token with each step."""

    async def run() -> None:
        async with Rig() as rig:
            hanging = rig.engines[0 if leg == "prefill" else 1]
            hanging.behave = on(leg, hang)
            hanging.running = running
            clock_s = 0.0
            rig.desk.now_s = lambda: clock_s
            stalls = Stalls(rig.desk, rig.counters)
            client = await rig.connect()
            await client.post("/v1/completions", BODY | {"stream": stream})
            await until(lambda: len(hanging.calls) == 1)
            for _ in range(2):
                await stalls.look()
                clock_s += limit_s - 1
                hanging.generated += 1  # slow, but not still
            assert len(hanging.calls) == 1
            await stalls.look()
            clock_s += limit_s - 1
            await stalls.look()
            assert rig.state().waiting_for == ()
            clock_s += 1.0
            await stalls.look()
            answer = await asyncio.wait_for(client.answer(), 5)
            assert (content_of(answer.events) if stream else answer.text) == RIGHT
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


async def looked_at(rig: Rig, *, after_s: float, meanwhile: Callable[[Load], None] = lambda _: None) -> bool:
    """Whether the only worker, which has a request and moves no counter, is given up at the second look.

    `meanwhile`: what happens to its load while its counters are on their way.
    """
    (engine,) = rig.engines
    engine.running = 1
    clock_s = 0.0
    rig.desk.now_s = lambda: clock_s
    stalls = Stalls(rig.desk, rig.counters)
    await stalls.look()
    clock_s = after_s
    engine.silent_s = 0.1
    look = asyncio.create_task(stalls.look())
    await asyncio.sleep(0.05)
    meanwhile(rig.desk.roster.load_of(engine.endpoint))
    await look
    return bool(rig.state().waiting_for)


def test_a_prompt_that_is_done_while_the_counters_come_was_computed_until_then() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED)) as rig:
            load = rig.desk.roster.load_of(rig.engines[0].endpoint)
            load.in_flight = 1
            load.waits(1000.0)
            assert not await looked_at(rig, after_s=61, meanwhile=lambda load: load.computed(1000.0))

    asyncio.run(run())


def test_a_prompt_that_comes_while_the_counters_come_excuses_nothing() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED)) as rig:
            rig.desk.roster.load_of(rig.engines[0].endpoint).in_flight = 1
            assert await looked_at(rig, after_s=61, meanwhile=lambda load: load.waits(1000.0))

    asyncio.run(run())


@pytest.mark.parametrize(("left", "given_up"), [(0.0, True), (1.0, False)])
def test_one_token_to_compute_is_told_from_what_is_left_of_rounding(left: float, *, given_up: bool) -> None:
    """A prompt whose KV is there counts one token; lengths that come from bytes are no whole numbers."""

    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED)) as rig:
            load = rig.desk.roster.load_of(rig.engines[0].endpoint)
            load.in_flight = 1
            for tokens in (3727.1, 1278.4, 5747.6, 6908.8, left):
                load.waits(tokens)
            for tokens in (1278.4, 5747.6, 3727.1, 6908.8):
                load.computed(tokens)
            assert load.prefill_tokens != left, "nothing was rounded: other lengths are needed"
            assert await looked_at(rig, after_s=61) == given_up

    asyncio.run(run())


def test_a_worker_that_hangs_keeps_no_other_from_coming_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(watching, "_HEALTH_S", 0.05)

    async def run() -> None:
        hanging, other = FakeEngine(Role.AGGREGATED, 0), FakeEngine(Role.AGGREGATED, 1)
        hanging.silent_s = 60.0
        async with Rig(hanging, other) as rig:
            watcher = rig.watcher(tmp_path / "router.state.json")
            task = asyncio.create_task(watcher.run())
            await until(lambda: hanging.accepted == 1)  # a look that stays
            for _ in range(2):
                rig.desk.roster.unreachable(other.endpoint)
                assert rig.state().waiting_for == ("aggregated-1: does not answer",)
                await until(lambda: rig.state().waiting_for == ())
            assert (hanging.accepted, hanging.checks) == (1, 0)
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
            watcher = rig.watcher(tmp_path / "router.state.json")
            clock_s = asyncio.get_running_loop().time()
            rig.desk.now_s = lambda: clock_s
            task = asyncio.create_task(watcher.run())

            async def stall(_call: Call, writer: asyncio.StreamWriter) -> bool:
                begin_stream(writer)
                writer.write(chunk(event({"choices": [{"index": 0, "text": " a"}]})))
                await writer.drain()
                await asyncio.sleep(60)
                return True

            async def looks_end_without_an_answer() -> None:
                engine.silent_s = 60.0
                accepted = engine.accepted
                await until(lambda: engine.accepted >= accepted + 3)  # whoever gives up a look breaks its connection

            async def looks_are_answered() -> None:
                engine.silent_s = 0.0
                checks = engine.checks
                await until(lambda: engine.checks >= checks + 2)

            engine.behave = stall
            client = await rig.connect()
            await client.post("/v1/completions", BODY | {"stream": True})
            await until(lambda: bool(engine.calls) and engine.checks > 0)
            for _ in range(2):  # both together are longer than one may be
                clock_s += 0.29
                await looks_end_without_an_answer()
                assert rig.desk.metrics.in_flight == 1
                assert rig.state().waiting_for == ()
                await looks_are_answered()
            engine.silent_s = 60.0
            clock_s += 0.31
            answer = await asyncio.wait_for(client.answer(), 5)
            assert not answer.whole
            assert b"worker_lost" in answer.events[-1]
            assert rig.state().waiting_for == ("aggregated-0: does not answer",)
            engine.silent_s = 0.0
            engine.behave = None
            await until(lambda: rig.state().waiting_for == ())
            assert (await rig.ask("/v1/completions", BODY)).text == RIGHT
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await rig.settle()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(Path(directory)))
