"""Silent failure is caught: whatever makes the index wrong ends in a doubt that is said, and in remembered routes."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hpcserve.engines import EngineCounters
from hpcserve.nouns import Endpoint
from hpcserve.router.ask import AskError
from hpcserve.router.kv_knowledge import KvKnowledge
from hpcserve.router.kv_probe import KvProbe
from hpcserve.router.kv_watch import KvWatch
from hpcserve.router.pool import Pools
from hpcserve.routing.kv_index import KvIndex
from tests.router.following import Following, telling
from tests.router.publisher import Publisher, publishing
from tests.routing.kv_model import BLOCK, stored

NONE = dict.fromkeys(
    ("xfer_count", "xfer_bytes", "xfer_failed", "kv_expired", "late_notices", "external_hit_tokens"), 0
)


class Engine:
    """An engine that answers the router's small requests, tells of its KV and counts; each can be broken."""

    def __init__(self, publisher: Publisher) -> None:
        self.publisher = publisher
        self.tells = True
        self.caches = True
        self.answers = True
        self.seen: set[tuple[int, ...]] = set()
        self.hits = 0
        self.prompt_tokens = 0
        self.probes = 0

    async def complete(self, prompt: list[int]) -> None:
        if not self.answers:
            raise AskError("gone")
        self.probes += 1
        self.prompt_tokens += len(prompt)
        known = tuple(prompt)
        if known in self.seen and self.caches:
            self.hits += (len(prompt) - 1) // BLOCK * BLOCK
            return
        self.seen.add(known)
        if self.tells:
            await self.publisher.publish(stored(prompt, 0, len(prompt) // BLOCK))

    async def of(self, worker: Endpoint) -> EngineCounters:  # noqa: ARG002 - CounterReader
        if not self.answers:
            raise AskError("gone")
        return EngineCounters(
            **NONE,
            xfer_seconds=0.0,
            local_hit_tokens=self.hits,
            prompt_tokens=self.prompt_tokens,
            generation_tokens=0,
            running=0,
            waiting=0,
            block_size=BLOCK,
        )


class Probe(KvProbe):
    """The real probe, asking that engine."""

    def __init__(self, engine: Engine, index: KvIndex, pools: Pools) -> None:
        counters: Any = engine
        super().__init__(pools, counters, index, key="")
        self._engine = engine

    async def _complete(self, worker: Endpoint, prompt: list[int]) -> float:  # noqa: ARG002 - there is one
        await self._engine.complete(prompt)
        return 0.0


class Scene(Following):
    def __init__(self, engine: Engine) -> None:
        super().__init__()
        loop = asyncio.get_running_loop()
        self.engine = engine
        self.knowledge = KvKnowledge(now_s=loop.time, index=self.index)
        self.now_s = 0.0
        counters: Any = engine
        self.watch = KvWatch(
            self.knowledge,
            self.feeds,
            counters,
            Probe(engine, self.index, Pools(loop=loop)),
            log=self.said.append,
            now_s=lambda: self.now_s,
        )
        self.endpoint = self.life("1")
        self.watch.follow((self.endpoint,))

    def life(self, generation: str) -> Endpoint:
        return telling(self.engine.publisher, generation=generation)

    async def look(self, after_s: float = 5.0) -> str:
        self.now_s += after_s
        await self.watch.look(self.endpoint)
        return self.knowledge.doubted.get("prefill-0", "")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TOLD_WITHIN_S", "_COUNTED_WITHIN_S"):
        monkeypatch.setattr(f"hpcserve.router.kv_probe.{name}", 3.0)


def run(body: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with publishing() as publisher, contextlib.aclosing(Scene(Engine(publisher))) as scene:
            await body(scene)

    asyncio.run(whole())


def test_a_worker_whose_feed_failed_is_doubted_until_a_probe_shows_again() -> None:
    async def body(scene: Scene) -> None:
        assert await scene.look() == ""
        scene.feeds.failures["prefill-0"] = "its KV events cannot be followed: of a reason"
        assert "of a reason" in await scene.look()
        assert "of a reason" in await scene.look()
        assert "of a reason" in scene.said[-1]
        assert await scene.look(61) == ""
        assert scene.engine.probes == 4

    run(body)


def test_a_feed_that_failed_is_said_though_its_worker_does_not_answer_now() -> None:
    async def body(scene: Scene) -> None:
        assert await scene.look() == ""
        scene.engine.answers = False
        scene.feeds.failures["prefill-0"] = "its KV events cannot be followed: of a reason"
        assert "of a reason" in await scene.look()
        assert "of a reason" in scene.said[-1]

    run(body)


def test_a_worker_that_tells_and_caches_is_believed() -> None:
    async def body(scene: Scene) -> None:
        for _ in range(3):
            assert await scene.look() == ""
        assert scene.engine.probes == 2
        assert scene.said == []

    run(body)


def test_events_that_never_come_are_found_out_by_the_probe_and_believed_again_once_they_come() -> None:
    async def body(scene: Scene) -> None:
        scene.engine.tells = False
        assert "do not tell of a prompt" in await scene.look()
        assert "prefill-0: KV events are not believed" in scene.said[0]
        scene.engine.tells = True
        assert await scene.look() != ""
        assert await scene.look(after_s=61) == ""
        assert "believed again" in scene.said[1]

    run(body)


def test_an_engine_without_a_prefix_cache_is_found_out() -> None:
    async def body(scene: Scene) -> None:
        scene.engine.caches = False
        assert "0 of 256 tokens" in await scene.look()  # 8 blocks of 32, the size that is taken before one is known

    run(body)


def test_predicted_hits_that_do_not_show_are_found_out_in_service() -> None:
    async def body(scene: Scene) -> None:
        assert await scene.look() == ""
        for _ in range(3):
            scene.knowledge.predicted_tokens["prefill-0"] += 5000
            scene.knowledge.predicted_prompts["prefill-0"] += 20
            await scene.look()
        assert "5000 tokens were predicted" in scene.knowledge.doubted["prefill-0"]

    run(body)


def test_a_worker_that_falls_silent_in_service_is_found_out() -> None:
    async def body(scene: Scene) -> None:
        assert await scene.look() == ""
        scene.engine.prompt_tokens += 5000
        await scene.look()
        assert "told nothing of its KV" in await scene.look(after_s=11)

    run(body)


def test_a_worker_that_does_not_answer_is_no_matter_of_doubt() -> None:
    async def body(scene: Scene) -> None:
        scene.engine.answers = False
        assert await scene.look() == ""

    run(body)


def test_a_worker_that_cannot_be_checked_for_long_is_not_believed_until_it_can() -> None:
    """It may serve, and answer neither `/metrics` nor the probe: then nothing holds the index against the truth."""

    async def body(scene: Scene) -> None:
        scene.engine.answers = False
        assert [await scene.look(after_s=30) for _ in range(3)] == ["", "", "it cannot be checked: gone"]
        assert "prefill-0: KV events are not believed" in scene.said[0]
        scene.engine.answers = True
        assert await scene.look() != ""
        assert await scene.look(after_s=61) == ""
        assert "believed again" in scene.said[1]

    run(body)


def test_another_generation_is_judged_anew() -> None:
    async def body(scene: Scene) -> None:
        scene.engine.tells = False
        assert await scene.look() != ""
        scene.knowledge.predicted_tokens["prefill-0"] = 7
        scene.engine.tells = True
        scene.endpoint = scene.life("2")
        scene.watch.follow((scene.endpoint,))
        assert scene.knowledge.doubted == {}
        assert scene.knowledge.predicted_tokens["prefill-0"] == 0
        assert await scene.look() == ""
        assert scene.engine.probes == 3

    run(body)
