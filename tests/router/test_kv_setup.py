"""Where events or tokens cannot be had the router says so, and serves by remembered routes."""

import asyncio
import builtins
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hpcserve.engines import read_counters
from hpcserve.router.ask import AskError
from hpcserve.router.counters import CounterReader
from hpcserve.router.kv_probe import KvProbe
from hpcserve.router.kv_setup import KvParts
from hpcserve.router.kv_watch import KvWatch
from hpcserve.router.pool import Pools
from tests.router.following import telling, until
from tests.tiny_model import byte_level, loaded


class Scene:
    """The parts, and an engine that answers `/tokenize` with what `post` makes of a body."""

    def __init__(self, directory: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.said: list[str] = []
        self.asked = 0
        self.wrong = False
        self.silent = 1
        self.ours = None if directory is None else loaded(byte_level(), directory)
        monkeypatch.setattr(KvProbe, "_post", lambda _probe, _worker, path, body: self.post(path, body))
        monkeypatch.setattr("hpcserve.router.kv_setup._ASK_AGAIN_S", 0.01)
        pools = Pools(loop=loop)
        self.parts = KvParts(
            model_directory=directory,
            without_cache=frozenset(),
            pools=pools,
            counters=CounterReader(pools, read_counters),
            key="",
            log=self.said.append,
            now_s=loop.time,
        )
        self.parts.follow((telling(None),))

    async def post(self, path: str, body: bytes) -> bytes:
        assert path == "/tokenize"
        self.asked += 1
        if self.asked <= self.silent:
            raise AskError("not yet")
        assert self.ours is not None
        fields: Mapping[str, msgspec.Raw] = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        ids = memoryview(self.ours.tokens("chat" if "messages" in fields else "completions", fields)).cast("I").tolist()
        return json.dumps({"tokens": [*ids, 7] if self.wrong else ids, "count": len(ids)}).encode()


async def ended(scene: Scene, *, within_s: float = 10) -> None:
    async with asyncio.timeout(within_s):
        await scene.parts.run()


def test_without_events_nothing_of_them_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        scene = Scene(None, monkeypatch)
        await ended(scene)
        assert scene.parts.doubts == ()
        assert not scene.parts.knowledge.exact
        await scene.parts.close()

    asyncio.run(body())


def test_other_token_ids_than_the_engines_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        scene = Scene(tmp_path, monkeypatch)
        scene.wrong = True
        await ended(scene)
        assert "other token ids are made" in scene.parts.doubts[0]
        assert "remembered instead" in scene.said[0]
        assert not scene.parts.knowledge.exact
        await scene.parts.close()

    asyncio.run(body())


def test_events_begin_once_a_worker_has_shown_the_same_token_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        scene = Scene(tmp_path, monkeypatch)
        running = asyncio.create_task(scene.parts.run())
        await until(lambda: scene.parts.knowledge.exact)
        assert scene.said == ["KV events are followed"]
        assert scene.parts.doubts == ()
        names = {series.name for series in scene.parts.series()}
        assert {"kv_exact", "kv_index_blocks", "kv_event_batches", "kv_event_lag_seconds", "kv_event_unknown"} <= names
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await scene.parts.close()

    asyncio.run(body())


def test_a_service_whose_workers_never_show_token_ids_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine without `/tokenize` answers 404 for good: events are wanted, and would never be used."""
    monkeypatch.setattr("hpcserve.router.kv_setup._SAID_AFTER", 3)

    async def body() -> None:
        scene = Scene(tmp_path, monkeypatch)
        scene.silent = 10
        running = asyncio.create_task(scene.parts.run())
        await until(lambda: bool(scene.said))
        assert scene.said == [f"KV events are not used yet: {scene.parts.doubts[0]}"]
        assert "prefill-0: not yet" in scene.said[0]
        await until(lambda: scene.parts.knowledge.exact)
        assert scene.parts.doubts == ()
        assert len(scene.said) == 2
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await scene.parts.close()

    asyncio.run(body())


def test_a_watch_that_breaks_takes_nothing_else_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_watch: KvWatch) -> None:
        raise ZeroDivisionError("a mistake of our own")

    async def body() -> None:
        scene = Scene(tmp_path, monkeypatch)
        monkeypatch.setattr(KvWatch, "run", broken)
        await ended(scene)
        assert "a mistake of our own" in scene.parts.doubts[0]
        assert not scene.parts.knowledge.exact
        await scene.parts.close()

    asyncio.run(body())


@pytest.mark.parametrize("missing", ["zmq", "tokenizers"])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    whole = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name.partition(".")[0] == missing or (missing == "zmq" and name == "hpcserve.router.event_feeds"):
            raise ImportError(name)
        return whole(name, *more, **named)

    async def body() -> None:
        scene = Scene(tmp_path, monkeypatch)
        monkeypatch.setattr(builtins, "__import__", without)
        await ended(scene)
        monkeypatch.setattr(builtins, "__import__", whole)
        assert "is not installed" in scene.parts.doubts[0]
        assert "hpcserve[kv]" in scene.parts.doubts[0]
        await scene.parts.close()

    asyncio.run(body())


def test_a_model_without_a_tokenizer_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        scene = Scene(tmp_path, monkeypatch)
        (tmp_path / "tokenizer.json").unlink()
        await ended(scene)
        assert "tokenizer.json" in scene.parts.doubts[0]
        await scene.parts.close()

    asyncio.run(body())
