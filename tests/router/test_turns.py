"""A router that stood still: what it reads then may be old, and KV that a prefill's answer offers may be another's."""

import asyncio
from pathlib import Path

import pytest

from hpcserve.router import watching
from hpcserve.router.desk import Limits
from hpcserve.router.turns import Turns
from tests.router.fake_engine import Call
from tests.router.faults import BODY, RIGHT
from tests.router.rig import Rig

EVERY_S = 0.25


def ran_until(end_s: float) -> Turns:
    turns = Turns()
    for number in range(20, -1, -1):
        turns.seen(end_s - number * EVERY_S)
    return turns


def test_while_the_loop_runs_what_is_read_has_just_come() -> None:
    assert Turns().there_since_s(1e9) == 1e9, "nobody looks"
    turns = ran_until(100.0)
    for after_s in (0.0, EVERY_S, 2 * EVERY_S):
        assert turns.there_since_s(100.0 + after_s) == 100.0 + after_s


def test_after_a_gap_what_is_read_may_have_come_at_its_beginning() -> None:
    turns = ran_until(100.0)
    assert turns.there_since_s(107.0) <= 100.0, "read before the loop was looked at again"
    turns.seen(107.0)
    assert turns.there_since_s(107.1) <= 100.0, "read in one of the turns after it"
    turns.seen(107.25)
    assert turns.there_since_s(107.3) == 107.3


def stood_still(rig: Rig) -> None:
    rig.desk.turns.seen(0.0)
    rig.desk.turns.seen(0.0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prefill_whose_answer_lay_there_for_longer_than_the_limit_is_made_anew(stream: bool) -> None:
    async def run() -> None:
        async with Rig(limits=Limits(handoff_s=0.5), sweep_s=100.0) as rig:
            prefill, decode = rig.engines

            async def late(_call: Call, _writer: asyncio.StreamWriter) -> bool:
                if prefill.legs() == ["prefill"]:
                    await asyncio.sleep(1.0)
                    stood_still(rig)
                else:
                    rig.desk.turns = Turns()
                return False

            prefill.behave = late
            answer = await rig.ask("/v1/completions", BODY | {"stream": stream})
            assert answer.status == 200
            assert stream or answer.text == RIGHT
            assert (prefill.legs(), decode.legs()) == (["prefill"] * 2, ["decode"])
            assert rig.desk.metrics.retries == {"prefill_late": 1}
            assert rig.desk.metrics.lease_drops == 0
            await rig.settle()

    asyncio.run(run())


def test_the_limit_of_the_first_token_counts_from_when_the_prefills_answer_may_have_come() -> None:
    async def run() -> None:
        async with Rig(limits=Limits(handoff_s=1.5), sweep_s=100.0) as rig:
            prefill, decode = rig.engines

            async def late(_call: Call, _writer: asyncio.StreamWriter) -> bool:
                if prefill.legs() == ["prefill"]:
                    await asyncio.sleep(0.5)
                    stood_still(rig)
                else:
                    rig.desk.turns = Turns()
                return False

            async def slow(_call: Call, _writer: asyncio.StreamWriter) -> bool:
                if decode.legs() == ["decode"]:
                    await asyncio.sleep(1.2)
                return False

            prefill.behave, decode.behave = late, slow
            assert (await rig.ask("/v1/completions", BODY | {"stream": True})).status == 200
            assert rig.desk.metrics.lease_drops == 1
            await rig.settle()

    asyncio.run(run())


def test_the_running_router_looks_at_its_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SWEEP_S", 0.01)

    async def run() -> None:
        async with Rig(sweep_s=100.0) as rig:
            watcher = rig.watcher(tmp_path / "router.state.json")
            began_s = rig.desk.now_s()
            task = asyncio.create_task(watcher.run())
            await asyncio.sleep(0.3)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            since_s = rig.desk.turns.there_since_s(rig.desk.now_s() + 60.0)
            assert began_s < since_s <= rig.desk.now_s()

    asyncio.run(run())
