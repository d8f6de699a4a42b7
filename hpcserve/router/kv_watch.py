"""Looks after what the router believes of KV: the workers' counters are compared with it, and doubts are said aloud."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hpcserve.nouns import Endpoint
from hpcserve.router.ask import AskError
from hpcserve.router.counters import CounterReader
from hpcserve.router.event_feeds import EventFeeds
from hpcserve.router.kv_knowledge import KvKnowledge
from hpcserve.router.kv_probe import KvProbe
from hpcserve.routing import Evidence, Trust

__all__ = ["KvWatch"]

_LOOK_S = 5.0
_PROBE_AGAIN_S = 60.0
"""A worker that failed its probe is probed again: what was wrong may have been the moment."""
_UNCHECKED_S = 60.0
"""A worker that is busy or starts again answers within this; one that never shows its counters cannot be judged."""


@dataclass(slots=True, kw_only=True)
class _Watched:
    generation: str
    trust: Trust
    probed_s: float | None = None
    unanswered_s: float | None = None
    """Since when neither a probe nor its counters were answered; None: the last look was."""


class KvWatch:
    """Judges the workers whose events are followed."""

    def __init__(
        self,
        knowledge: KvKnowledge,
        feeds: EventFeeds,
        counters: CounterReader,
        probe: KvProbe,
        *,
        log: Callable[[str], None],
        now_s: Callable[[], float],
    ) -> None:
        self._knowledge = knowledge
        self._feeds = feeds
        self._counters = counters
        self._probe = probe
        self._log = log
        self._now_s = now_s
        self._watched: dict[str, _Watched] = {}
        self._endpoints: tuple[Endpoint, ...] = ()

    def follow(self, endpoints: tuple[Endpoint, ...]) -> None:
        """These are the workers now."""
        self._endpoints = tuple(endpoint for endpoint in endpoints if not endpoint.draining)
        self._feeds.follow(self._endpoints)
        there = {endpoint.id: endpoint.generation for endpoint in self._endpoints}
        for worker, watched in tuple(self._watched.items()):
            if there.get(worker) != watched.generation:
                del self._watched[worker]
                self._knowledge.forget(worker)
        for endpoint in self._endpoints:
            if endpoint.id not in self._watched and endpoint.events_url is not None:
                self._watched[endpoint.id] = _Watched(generation=endpoint.generation, trust=Trust())
        self._say()

    async def run(self) -> None:
        """Look at one worker after the other until cancelled."""
        while True:
            for endpoint in self._endpoints:
                if endpoint.id in self._watched:
                    await self.look(endpoint)
            await asyncio.sleep(_LOOK_S)

    async def look(self, endpoint: Endpoint) -> None:
        """One look at one worker; probes it where it was not probed, or is doubted."""
        watched = self._watched.get(endpoint.id)
        feed = self._feeds.feeds.get(endpoint.id)
        if watched is None or feed is None:
            return
        failure = self._feeds.failures.pop(endpoint.id, None)
        if failure is not None:  # believed again once a probe shows in the index
            watched.trust.probed(failure)
            watched.probed_s = self._now_s()
            self._say()
        due = watched.probed_s is None or (watched.trust.reason and self._now_s() - watched.probed_s >= _PROBE_AGAIN_S)
        try:
            if due:
                reason = await self._probe.of(endpoint)
                watched.probed_s = self._now_s()
                watched.trust.probed(reason)
            seen = await self._counters.of(endpoint)
        except AskError as error:  # whether it serves is others' to see to
            self._unanswered(watched, str(error))
            return
        watched.unanswered_s = None
        knowledge, blocks = self._knowledge, feed.blocks
        watched.trust.judge(
            Evidence(
                predicted_tokens=knowledge.predicted_tokens[endpoint.id],
                predicted_prompts=knowledge.predicted_prompts[endpoint.id],
                hit_tokens=seen.local_hit_tokens,
                prompt_tokens=seen.prompt_tokens,
                batches=feed.counts.batches,
                stored_blocks=blocks.stored,
                unplaced_blocks=blocks.orphans + blocks.passed_over + blocks.unusable,
            ),
            now_s=self._now_s(),
        )
        self._say()

    def _unanswered(self, watched: _Watched, why: str) -> None:
        """What cannot be checked for long is not believed either; the next probe that it answers decides."""
        now_s = self._now_s()
        if watched.unanswered_s is None:
            watched.unanswered_s = now_s
        elif now_s - watched.unanswered_s >= _UNCHECKED_S and not watched.trust.reason:
            watched.trust.probed(f"it cannot be checked: {' '.join(why.split())}")
            watched.probed_s = now_s
            self._say()

    def _say(self) -> None:
        """Say what changed; approximate mode is where the doubted workers are until they are believed again."""
        before = self._knowledge.doubted
        doubted = {worker: each.trust.reason for worker, each in self._watched.items() if each.trust.reason}
        for worker, reason in doubted.items():
            if worker not in before:
                self._log(f"worker {worker}: KV events are not believed, routes are remembered instead: {reason}")
        for worker in before.keys() - doubted.keys():
            if worker in self._watched:
                self._log(f"worker {worker}: KV events are believed again")
        self._knowledge.doubted = doubted
