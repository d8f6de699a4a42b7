"""Workers whose engine stands still under requests though their HTTP still answers: `/health` does not show that."""

from dataclasses import dataclass

from hpcserve.engines import EngineCounters
from hpcserve.nouns import Endpoint
from hpcserve.router.ask import AskError
from hpcserve.router.counters import CounterReader
from hpcserve.router.desk import Desk

__all__ = ["Stalls"]

STALLED_S = 600.0
"""An engine that has requests for so long and has neither ended one nor made a token stands still. vLLM counts a prompt
when all of it is computed: one that takes a worker ten minutes alone would be cut off here. Stated, not measured."""
DECODING_STALLED_S = 60.0
"""The same where it only decodes: then each of its steps makes a token. Stated, not measured."""

_LEAST_TOKENS = 0.5
"""A leg that has a prompt to compute counts one token at least; where none has, only rounding errors are left."""


@dataclass(slots=True, kw_only=True)
class _Seen:
    counters: EngineCounters
    since_s: float
    stalled: bool = False


class Stalls:
    """Compares counters of workers that have requests, look by look."""

    def __init__(self, desk: Desk, counters: CounterReader) -> None:
        self._desk = desk
        self._counters = counters
        self._seen: dict[tuple[str, str], _Seen] = {}

    async def look(self) -> None:
        """One look at all workers; to be called a few times a minute."""
        endpoints = self._desk.roster.endpoints
        for gone in self._seen.keys() - {(endpoint.id, endpoint.generation) for endpoint in endpoints}:
            del self._seen[gone]
        for endpoint in endpoints:
            await self._look_at(endpoint)

    async def _look_at(self, endpoint: Endpoint) -> None:
        desk, key = self._desk, (endpoint.id, endpoint.generation)
        seen = self._seen.get(key)
        load = desk.roster.loads.get(endpoint.id)
        if (load is None or not load.in_flight) and (seen is None or not seen.stalled):
            self._seen.pop(key, None)
            return
        computes = load is not None and (load.prefill_tokens or 0.0) >= _LEAST_TOKENS  # before its counters are read
        try:
            counters = await self._counters.of(endpoint)
        except AskError:
            return  # its /health says the same, and is asked more often
        now_s = desk.now_s()
        if seen is None or seen.counters != counters:
            if seen is not None and seen.stalled and desk.roster.stalled(endpoint, still=False):
                desk.log.event(f"worker {endpoint.id}: goes on")
            self._seen[key] = _Seen(counters=counters, since_s=now_s)
        elif not seen.stalled and now_s - seen.since_s >= _limit_s(counters, computes=computes):
            seen.stalled = True
            reason = f"no token for {now_s - seen.since_s:.0f} s"
            desk.roster.stalled(endpoint, still=True)
            desk.log.event(f"worker {endpoint.id}: left out: {reason}")
            desk.pools.break_off(endpoint, f"{endpoint.id} stands still: {reason}")


def _limit_s(counters: EngineCounters, *, computes: bool) -> float:
    """How long its counters may stand still: not for long where requests run and none of ours has a prompt to compute.

    Requests that wait for KV do not run, by its own count.
    """
    return STALLED_S if computes or not counters.running else DECODING_STALLED_S
