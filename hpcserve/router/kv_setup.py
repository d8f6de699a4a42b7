"""What the router knows of KV, put together for one service: remembered routes, or events and tokens as well."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from hpcserve.errors import HpcserveError, MissingToolError
from hpcserve.nouns import Endpoint
from hpcserve.router.ask import AskError
from hpcserve.router.counters import CounterReader
from hpcserve.router.exposition import Series
from hpcserve.router.kv_knowledge import KvKnowledge
from hpcserve.router.kv_series import feed_series, knowledge_series
from hpcserve.router.pool import Pools
from hpcserve.routing import KvIndex

if TYPE_CHECKING:  # what only `router.kv: events` needs is loaded only then
    from hpcserve.router.event_feeds import EventFeeds
    from hpcserve.router.kv_probe import KvProbe
    from hpcserve.router.kv_watch import KvWatch
    from hpcserve.router.tokens import PromptTokens

__all__ = ["KvParts"]

_ASK_AGAIN_S = 2.0
_SAID_AFTER = 30
"""Rounds in which no worker shows its token ids, a minute or more: this is no start any more, and is logged."""


class KvParts:
    """Owns the knowledge and what feeds it. To be made on the running loop."""

    def __init__(
        self,
        *,
        model_directory: Path | None,
        without_cache: frozenset[str],
        pools: Pools,
        counters: CounterReader,
        key: str,
        log: Callable[[str], None],
        now_s: Callable[[], float],
    ) -> None:
        """`model_directory`: where the tokenizer lies, for `router.kv: events`; None: routes are remembered only.

        `without_cache`: workers that keep no prefixes. `key`: the engines' own API key.
        """
        self.knowledge = KvKnowledge(now_s=now_s)
        self.knowledge.without_cache = without_cache
        self.wanted = model_directory is not None
        self.missing = ""
        """Why events are not used though they are wanted; empty while nothing is in the way."""
        self._model_directory = model_directory
        self._pools = pools
        self._counters = counters
        self._key = key
        self._log = log
        self._now_s = now_s
        self._endpoints: tuple[Endpoint, ...] = ()
        self._feeds: EventFeeds | None = None
        self._watch: KvWatch | None = None

    @property
    def doubts(self) -> tuple[str, ...]:
        """What is in the way of the engines' events, one sentence each."""
        doubted = [f"{worker}: {reason}" for worker, reason in sorted(self.knowledge.doubted.items())]
        return tuple(" ".join(one.split()) for one in (self.missing, *doubted) if one)

    def follow(self, endpoints: tuple[Endpoint, ...]) -> None:
        """These are the workers now."""
        there = {endpoint.id: endpoint.generation for endpoint in endpoints}
        for endpoint in self._endpoints:
            if there.get(endpoint.id) != endpoint.generation:
                self.knowledge.forget(endpoint.id)
        self._endpoints = endpoints
        knowledge = self.knowledge
        knowledge.some_are_silent = any(
            endpoint.events_url is None and endpoint.id not in knowledge.without_cache for endpoint in endpoints
        )
        if self._watch is not None:
            self._watch.follow(endpoints)

    async def run(self) -> None:
        """Get events and tokens going, and look after them; ends at once where they are not wanted."""
        if self._model_directory is None:
            return
        try:
            await self._begin(self._model_directory)
            if self._watch is not None:
                await self._watch.run()
        except HpcserveError as error:
            self._give_up(str(error))
        except Exception as error:  # noqa: BLE001 - what is wrong with it must not take the router down
            self._give_up(f"{type(error).__name__}: {error}")

    def _give_up(self, reason: str) -> None:
        self.missing = reason
        self.knowledge.index = self.knowledge.tokens = None
        self._log(f"KV events are not used, routes are remembered instead: {reason}")

    async def _begin(self, model_directory: Path) -> None:
        """Raises HpcserveError where they cannot be had."""
        try:
            from hpcserve.router.event_feeds import EventFeeds  # noqa: PLC0415 - an extra, and some megabytes
        except ImportError:
            raise MissingToolError(
                "the package `pyzmq` is not installed",
                remedy="install hpcserve[kv], or set router.kv: approximate",
            ) from None
        from hpcserve.router.kv_probe import KvProbe  # noqa: PLC0415 - see above
        from hpcserve.router.kv_watch import KvWatch  # noqa: PLC0415 - see above
        from hpcserve.router.tokens import load_prompt_tokens  # noqa: PLC0415 - see above

        tokens = await asyncio.to_thread(load_prompt_tokens, model_directory)
        index = KvIndex()
        probe = KvProbe(self._pools, self._counters, index, key=self._key)
        differ = await self._differ(probe, tokens)
        self.missing = ""
        if differ:
            raise HpcserveError(differ, remedy="set router.kv: approximate")
        self.knowledge.index, self.knowledge.tokens = index, tokens
        self._feeds = EventFeeds(index, log=self._log, now_s=self._now_s)
        self._watch = KvWatch(self.knowledge, self._feeds, self._counters, probe, log=self._log, now_s=self._now_s)
        self._watch.follow(self._endpoints)
        self._log("KV events are followed")

    async def _differ(self, probe: "KvProbe", tokens: "PromptTokens") -> str:
        """How token ids made here differ from those of the first worker that answers; empty where they do not."""
        rounds = 0
        while True:
            for endpoint in self._endpoints:
                try:
                    return await probe.tokens_differ(endpoint, tokens)
                except AskError as error:
                    self.missing = f"no worker has shown its token ids yet; {endpoint.id}: {error}"
            rounds += 1
            if rounds == _SAID_AFTER and self.missing:
                self._log(f"KV events are not used yet: {self.doubts[0]}")
            await asyncio.sleep(_ASK_AGAIN_S)

    def series(self) -> Iterator[Series]:
        """What the metrics show of it."""
        yield from knowledge_series(self.knowledge, doubts=len(self.doubts))
        if self._feeds is not None:
            yield from feed_series(self._feeds, now_s=self._now_s())

    async def close(self) -> None:
        """End what runs."""
        if self._feeds is not None:
            await self._feeds.close()
        self.knowledge.close()
