"""What a worker publishes is in the index: what came before the router, what was dropped on its way, nothing else."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from hpcserve.router import event_feeds
from hpcserve.router.event_feed import EventFeed
from hpcserve.routing.kv_events import EventBatch
from hpcserve.routing.kv_intake import Intake
from tests.router.following import Following, telling, until
from tests.router.publisher import Publisher, publishing
from tests.routing.kv_model import contents, removed, stored
from tests.routing.test_kv_index import PROMPTS, keys_of

TOKENS = PROMPTS[0]
KEYS = keys_of(TOKENS)


class Follower(Following):
    def follow(self, *workers: tuple[str, str, Publisher], replays: bool = True) -> None:
        self.feeds.follow(
            telling(publisher, worker=worker, generation=generation, replays=replays)
            for worker, generation, publisher in workers
        )

    def found(self) -> dict[str, int]:
        return self.index.find(KEYS)


def run(body: Callable[[Follower], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with contextlib.aclosing(Follower()) as follower:
            await body(follower)

    asyncio.run(whole())


def test_what_was_published_before_the_router_came_is_learnt_too() -> None:
    async def body(follower: Follower) -> None:
        async with publishing() as one, publishing() as other:
            await one.publish(stored(TOKENS, 0, 2))
            follower.follow(("prefill-0", "1", one), ("prefill-1", "1", other))
            await until(lambda: follower.found() == {"prefill-0": 2})
            await one.publish(stored(TOKENS, 2, 4))
            await other.publish(stored(TOKENS, 0, 1))
            await until(lambda: follower.found() == {"prefill-0": 4, "prefill-1": 1})
            await one.publish(removed(contents(TOKENS)[3]))
            await until(lambda: follower.found() == {"prefill-0": 3, "prefill-1": 1})
            assert follower.said == []

    run(body)


def test_a_batch_that_was_dropped_is_asked_for_again() -> None:
    async def body(follower: Follower) -> None:
        async with publishing() as one:
            follower.follow(("prefill-0", "1", one))
            await one.publish(stored(TOKENS, 0, 1))
            await until(lambda: follower.found() == {"prefill-0": 1})
            await one.publish(stored(TOKENS, 1, 2), dropped=True)
            await one.publish(stored(TOKENS, 2, 3))
            await until(lambda: follower.found() == {"prefill-0": 3})
            assert one.asked[0] == 0
            assert 1 in one.asked
            assert follower.feeds.feeds["prefill-0"].counts.lost_batches == 0

    run(body)


@pytest.mark.parametrize("replays", [True, False])
def test_what_cannot_be_had_any_more_makes_the_worker_unknown(replays: bool) -> None:
    async def body(follower: Follower) -> None:
        async with publishing(kept=1) as one:
            follower.follow(("prefill-0", "1", one), replays=replays)
            while follower.found() != {"prefill-0": 4}:  # a subscription takes a moment, and may miss what came before
                await one.publish(stored(TOKENS, 0, 4))
                await asyncio.sleep(0.02)
            await one.publish(removed(contents(TOKENS)[0]), dropped=True)
            await one.publish(stored(PROMPTS[3], 0, 2))
            await until(lambda: follower.index.find(keys_of(PROMPTS[3])) == {"prefill-0": 2})
            assert follower.found() == {}
            assert follower.feeds.feeds["prefill-0"].counts.lost_batches >= 1
            assert "lost" in follower.said[-1]

    run(body)


def test_a_worker_that_starts_anew_on_the_same_ports_holds_nothing() -> None:
    """The address is the same, the engine is another one: nothing of the last one's may be counted on."""

    async def body(follower: Follower) -> None:
        async with publishing() as one:
            follower.follow(("prefill-0", "1000", one))
            await one.publish(stored(TOKENS, 0, 4))
            await until(lambda: follower.found() == {"prefill-0": 4})
            async with publishing() as next_life:
                follower.follow(("prefill-0", "1065", next_life))
                assert follower.found() == {}
                await next_life.publish(stored(TOKENS, 0, 1))
                await until(lambda: follower.found() == {"prefill-0": 1})
                await until(lambda: follower.index.blocks == 1)  # the last life's entries are freed as well

    run(body)


def test_a_worker_whose_batches_are_numbered_anew_is_learnt_anew() -> None:
    """Its endpoint says nothing of it: what publishes behind the same address was started again."""

    async def body(follower: Follower) -> None:
        async with publishing() as one:
            follower.follow(("prefill-0", "1", one))
            await until(lambda: bool(one.asked))
            for _ in range(3):
                await one.publish(stored(TOKENS, 0, 4))
            await until(lambda: follower.found() == {"prefill-0": 4})
            one.begin_anew()
            await one.publish(stored(PROMPTS[3], 0, 1))
            await one.publish(stored(PROMPTS[3], 1, 2))
            await until(lambda: follower.index.find(keys_of(PROMPTS[3])) == {"prefill-0": 2})
            assert follower.found() == {}
            assert "numbered anew" in follower.said[-1]

    run(body)


def test_a_worker_that_is_gone_is_forgotten() -> None:
    async def body(follower: Follower) -> None:
        async with publishing() as one:
            follower.follow(("prefill-0", "1", one))
            await one.publish(stored(TOKENS, 0, 4))
            await until(lambda: follower.found() == {"prefill-0": 4})
            follower.follow()
            assert follower.found() == {}
            assert follower.feeds.feeds == {}
            await until(lambda: follower.index.blocks == 0)

    run(body)


def test_what_cannot_be_read_is_said_once_and_counted() -> None:
    async def body(follower: Follower) -> None:
        async with publishing() as one:
            follower.follow(("prefill-0", "1", one))
            await one.publish(stored(TOKENS, 0, 2))
            await until(lambda: follower.found() == {"prefill-0": 2})
            for _ in range(3):
                await one.publish_bytes(b"\xc1")
            await one.send(b"one part")
            await one.publish(stored(PROMPTS[3], 0, 2))
            await until(lambda: follower.index.find(keys_of(PROMPTS[3])) == {"prefill-0": 2})
            assert follower.found() == {}
            counts = follower.feeds.feeds["prefill-0"].counts
            assert counts.unreadable == 4
            assert len(follower.said) == 2

    run(body)


def test_a_batch_that_nobody_foresaw_is_like_one_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    take, broken = Intake.take, [RuntimeError("not foreseen")]

    def fail_once(self: Intake, batch: EventBatch) -> None:
        if broken:
            raise broken.pop()
        take(self, batch)

    monkeypatch.setattr(Intake, "take", fail_once)

    async def body(follower: Follower) -> None:
        async with publishing() as one:
            await one.publish(stored(TOKENS, 0, 2))
            await one.publish(stored(PROMPTS[3], 0, 2))
            follower.follow(("prefill-0", "1", one))
            await until(lambda: follower.index.find(keys_of(PROMPTS[3])) == {"prefill-0": 2})
            assert follower.found() == {}
            assert follower.feeds.feeds["prefill-0"].counts.unreadable == 1
            assert follower.said == ["worker prefill-0: KV events cannot be read: RuntimeError"]

    run(body)


def test_a_feed_that_fails_is_said_and_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    replay, broken = EventFeed._replay, [RuntimeError("not foreseen")] * 3

    async def fail(self: EventFeed) -> None:
        await replay(self)
        if broken:
            raise broken.pop()

    monkeypatch.setattr(EventFeed, "_replay", fail)
    monkeypatch.setattr(event_feeds, "_FIRST_PAUSE_S", 0.02)

    async def body(follower: Follower) -> None:
        async with publishing() as one:
            await one.publish(stored(TOKENS, 0, 2))
            follower.follow(("prefill-0", "1", one))
            await until(lambda: not broken and follower.found() == {"prefill-0": 2})
            await one.publish(stored(TOKENS, 2, 4))
            await until(lambda: follower.found() == {"prefill-0": 4})
            assert one.asked[:4] == [0, 0, 0, 0]
            assert len(follower.said) == 1
            assert "not foreseen" in follower.said[0]
            assert "not foreseen" in follower.feeds.failures["prefill-0"]
            follower.follow()
            assert follower.feeds.failures == {}

    run(body)


def test_an_address_that_is_none_is_said_and_harms_nobody() -> None:
    async def body(follower: Follower) -> None:
        async with publishing() as one:
            one.url = "no address"
            follower.follow(("prefill-0", "1", one))
            await until(lambda: bool(follower.said))
            assert "cannot be followed" in follower.said[0]

    run(body)
