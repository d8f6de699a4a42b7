"""A worker whose `/health` is well while it answers with errors: left out, and back once it serves."""

import asyncio
from pathlib import Path

import pytest

from hpcserve.nouns import Role
from hpcserve.router import watching
from tests.router.fake_engine import FakeEngine
from tests.router.faults import BODY, fail_500
from tests.router.rig import Rig


def test_a_worker_that_answers_with_errors_is_tried_by_the_router_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(watching, "_DISCOVERY_S", 0.02)

    async def run() -> None:
        bad, good = FakeEngine(Role.AGGREGATED, 0), FakeEngine(Role.AGGREGATED, 1)
        async with Rig(bad, good) as rig:
            bad.behave = fail_500
            for _ in range(8):
                assert (await rig.ask("/v1/completions", BODY)).status == 200
            assert len(bad.legs()) == 3, "after three failures nobody's request goes there"
            rig.desk.roster.probed(bad.endpoint, well=True)
            assert rig.state().waiting_for == (f"{bad.id}: answers with errors",)
            watcher = rig.watcher(tmp_path / "router.state.json")
            task = asyncio.create_task(watcher.run())
            await asyncio.sleep(0.2)
            assert rig.state().waiting_for, "its trial failed"
            bad.behave = None
            opened_s = rig.desk.now_s()
            monkeypatch.setattr(rig.desk, "now_s", lambda: opened_s + 100.0)
            await asyncio.sleep(0.3)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert rig.state().waiting_for == ()

    asyncio.run(run())
