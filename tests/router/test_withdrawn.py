"""Workers that discovery does not see any more while they still have requests."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from hpcserve.discovery import Snapshot
from hpcserve.nouns import Role
from hpcserve.router import watching
from tests.router.fake_engine import FakeEngine, prompt_of, tokens_of
from tests.router.faults import after, hang
from tests.router.rig import Rig

BODY: dict[str, Any] = {"model": "tiny", "prompt": "The longest river is", "max_tokens": 3}
RIGHT = "".join(tokens_of(prompt_of(BODY), 3))


def test_a_worker_that_discovery_misses_once_is_known_to_have_what_it_had() -> None:
    """Its record was not read in time; it still computes its requests, and is no idle worker."""

    async def run() -> None:
        async with Rig() as rig:
            prefill, gate = rig.engines[0], asyncio.Event()
            prefill.behave = after(gate)
            clients = [await rig.connect() for _ in range(3)]
            for client in clients:
                await client.post("/v1/completions", BODY)
            await asyncio.sleep(0.1)
            assert len(prefill.calls) == 3
            rig.engines.remove(prefill)
            rig.see()
            rig.engines.insert(0, prefill)
            rig.see()
            assert rig.desk.roster.load_of(prefill.endpoint).in_flight == 3
            prefill.generation = "g2"
            rig.see()
            assert rig.desk.roster.load_of(prefill.endpoint).in_flight == 0
            gate.set()
            for client in clients:
                assert (await client.answer()).text == RIGHT
            await rig.settle()

    asyncio.run(run())


def test_a_request_at_a_withdrawn_worker_that_hangs_starts_over_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing else would end it: the worker's connection stays open, and discovery tells of it no more."""
    monkeypatch.setattr(watching, "_HEALTH_TIMEOUT_S", 0.05)
    monkeypatch.setattr(watching, "_UNRESPONSIVE_S", 0.3)
    monkeypatch.setattr(watching, "_HEALTH_S", 0.05)

    async def run() -> None:
        prefill, decode = FakeEngine(Role.PREFILL), FakeEngine(Role.DECODE)
        async with Rig(prefill, decode) as rig:
            there = [prefill.endpoint, decode.endpoint]
            watcher = rig.watcher(tmp_path / "router.state.json", lambda: there)

            prefill.behave = hang
            client = await rig.connect()
            await client.post("/v1/completions", BODY)
            await asyncio.sleep(0.1)
            assert prefill.legs() == ["prefill"]
            prefill.silent_s = 60.0
            del there[0]
            watcher.see(Snapshot(endpoints=tuple(there), warnings=()))
            task = asyncio.create_task(watcher.run())
            answer = await asyncio.wait_for(client.answer(), 10)
            assert answer.text == RIGHT
            assert answer.headers["x-hpcserve-route"] == "decode-0"
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            rig.pools.tidy()
            assert rig.pools.retired() == ()
            await rig.settle()

    asyncio.run(run())


def test_a_worker_that_comes_back_keeps_its_connections_again() -> None:
    async def run() -> None:
        async with Rig() as rig:
            prefill, gate = rig.engines[0], asyncio.Event()
            prefill.behave = after(gate)
            client = await rig.connect()
            await client.post("/v1/completions", BODY)
            await asyncio.sleep(0.1)
            rig.engines.remove(prefill)
            rig.see()
            assert rig.pools.retired() == (prefill.endpoint,)
            rig.engines.insert(0, prefill)
            rig.see()
            assert rig.pools.retired() == ()
            gate.set()
            assert (await client.answer()).text == RIGHT
            rig.prove_all()
            await client.post("/v1/completions", BODY)
            assert (await client.answer()).text == RIGHT
            assert (len(prefill.calls), prefill.accepted) == (2, 1)
            await rig.settle()

    asyncio.run(run())
