"""What the tests of KV events stand on: a worker that may tell of its KV, and the feeds that follow it."""

import asyncio
from collections.abc import Callable

from hpcserve.nouns import Endpoint, Role
from hpcserve.router.event_feeds import EventFeeds
from hpcserve.routing import KvIndex
from tests.router.publisher import Publisher


def telling(
    publisher: Publisher | None, *, worker: str = "prefill-0", generation: str = "1", replays: bool = True
) -> Endpoint:
    """One life of a worker whose events this publisher publishes; None: it publishes none."""
    return Endpoint(
        id=worker,
        generation=generation,
        role=Role.PREFILL,
        url="http://127.0.0.1:1",
        node="n1",
        pid=1,
        model="m",
        engine="vllm",
        engine_version="0.32.0",
        handoff=None,
        events_url=None if publisher is None else publisher.url,
        events_replay_url=publisher.replay_url if publisher is not None and replays else None,
    )


class Following:
    """An index, the feeds that fill it, and what they say. To be made on the running loop."""

    def __init__(self) -> None:
        self.index = KvIndex()
        self.said: list[str] = []
        self.feeds = EventFeeds(self.index, log=self.said.append, now_s=asyncio.get_running_loop().time)

    async def aclose(self) -> None:
        await self.feeds.close()


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not what():  # noqa: ASYNC110 - what is waited for happens in several places
            await asyncio.sleep(0.01)
