"""How well prompts are sent where their KV is: the router's own choice beside other rules, on a public trace.

    python -m benchmarks.router_quality TRACE [--workers 8] [--blocks 2000] [--speeds 1 4]

TRACE: `conversation_trace.jsonl` of Mooncake (Qin et al., FAST 2025; github.com/kvcache-ai/Mooncake, Apache-2.0): each
line has `timestamp` in ms, `output_length` and `hash_ids`, the prompt as blocks of 512 tokens. All rules meet the same
simulated service: each worker keeps its last `--blocks` blocks (least recently used go first), computes one prompt
after the other at 10,000 tokens/s, and then gives a token each 20 ms. It has no P/D and no batches: what is
compared is who gets which prompt. The rules that know of caches see them as they are.

- `cache_aware`: the rule of SGLang's and vLLM's Rust routers (64 and 1.5: the least loaded; above 0.3 of the prompt:
  the longest match; else the least loaded), which never hears of evictions.
- `kv_cost`: Dynamo's rule (queued blocks + new blocks + blocks that are decoded, the least of it).
- `hpcserve`: `routing.choose`.
- bound: the share of hits of one cache as large as all together, whatever it costs to reach it.

Prints JSON, times in seconds.
"""

import argparse
import heapq
import itertools
import json
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hpcserve.nouns import Role
from hpcserve.routing import Demand, Load, Route, Typical, choose, table_of
from tests.routing.test_choose import endpoint

_BLOCK_TOKENS = 512
_BLOCK_S = _BLOCK_TOKENS / 10_000
_TOKEN_S = 0.02


class Asked(NamedTuple):
    """One request of the trace."""

    at_s: float
    blocks: tuple[int, ...]
    output_tokens: int


@dataclass(kw_only=True)
class Worker:
    """One worker: its cache, and what it has to do."""

    most_blocks: int
    cache: OrderedDict[int, None] = field(default_factory=OrderedDict)
    free_s: float = 0.0
    requests: int = 0
    decoding_blocks: int = 0
    computed_blocks: int = 0

    def match(self, blocks: Sequence[int]) -> int:
        """Leading blocks that it has."""
        return sum(1 for _ in itertools.takewhile(self.cache.__contains__, blocks))

    def keep(self, blocks: Sequence[int]) -> None:
        """Have these, newest last."""
        for block in blocks:
            self.cache[block] = None
            self.cache.move_to_end(block)
        while len(self.cache) > self.most_blocks:
            self.cache.popitem(last=False)


class Rule:
    """Says which worker gets a request."""

    def pick(self, workers: list[Worker], asked: Asked) -> int:
        """The place of the worker."""
        raise NotImplementedError

    def sent(self, place: int, asked: Asked, *, new_blocks: int) -> None:
        """It went there."""

    def computed(self, place: int, *, new_blocks: int) -> None:
        """Its prompt is computed."""

    def ended(self, place: int, asked: Asked) -> None:
        """Its answer is whole."""


class RoundRobin(Rule):
    """One after the other."""

    def __init__(self) -> None:
        self._turn = 0

    def pick(self, workers: list[Worker], asked: Asked) -> int:  # noqa: ARG002 - Rule
        """The next."""
        self._turn += 1
        return self._turn % len(workers)


class LeastLoaded(Rule):
    """The fewest requests."""

    def pick(self, workers: list[Worker], asked: Asked) -> int:  # noqa: ARG002 - Rule
        """The first of those."""
        return min(range(len(workers)), key=lambda place: workers[place].requests)


class CacheAware(Rule):
    """The rule of SGLang's and vLLM's Rust routers."""

    def __init__(self, workers: int) -> None:
        self._sent: list[set[int]] = [set() for _ in range(workers)]

    def pick(self, workers: list[Worker], asked: Asked) -> int:
        """Longest match, unless it is short or the load is uneven."""
        loads = [worker.requests for worker in workers]
        least = loads.index(min(loads))
        if max(loads) - min(loads) > 64 and max(loads) > 1.5 * min(loads):  # noqa: PLR2004 - the rule's own
            place = least
        else:
            found = [sum(1 for _ in itertools.takewhile(sent.__contains__, asked.blocks)) for sent in self._sent]
            best = found.index(max(found))
            place = best if found[best] > 0.3 * len(asked.blocks) else least
        self._sent[place].update(asked.blocks)
        return place


class KvCost(Rule):
    """Dynamo's rule."""

    def pick(self, workers: list[Worker], asked: Asked) -> int:
        """The least sum of blocks."""

        def cost(place: int) -> float:
            worker = workers[place]
            queued = max(0.0, worker.free_s - asked.at_s) / _BLOCK_S
            return queued + len(asked.blocks) - worker.match(asked.blocks) + worker.decoding_blocks

        return min(range(len(workers)), key=cost)


class Ours(Rule):
    """`routing.choose`, fed as the router feeds it."""

    def __init__(self, workers: int, trace: Sequence[Asked]) -> None:
        endpoints = [endpoint(Role.AGGREGATED, number) for number in range(workers)]
        self._table = table_of(endpoints, transfer_ms={}, proved=set())
        self._names = [each.id for each in endpoints]
        self._loads = {name: Load(prefill_tokens=0.0) for name in self._names}
        blocks = sum(len(asked.blocks) for asked in trace) / len(trace)
        self._answer_tokens = sum(asked.output_tokens for asked in trace) / len(trace)
        self._typical = Typical(
            prefill_ms=blocks * _BLOCK_S * 1000,
            decode_step_ms=_TOKEN_S * 1000,
            prompt_tokens=blocks * _BLOCK_TOKENS,
            answer_tokens=self._answer_tokens,
        )
        self._turn = 0

    def pick(self, workers: list[Worker], asked: Asked) -> int:
        """The least expected cost."""
        self._turn += 1
        matches = zip(self._names, (worker.match(asked.blocks) for worker in workers), strict=True)
        overlap = {name: match * _BLOCK_TOKENS for name, match in matches if match}
        demand = Demand(float(len(asked.blocks) * _BLOCK_TOKENS), self._answer_tokens, overlap)
        route = choose(self._table, self._loads, self._typical, model=None, turn=self._turn, demand=demand)
        if not isinstance(route, Route):
            raise TypeError(route)
        return self._names.index(route.decode.id)

    def sent(self, place: int, asked: Asked, *, new_blocks: int) -> None:  # noqa: ARG002 - Rule
        """Count it."""
        load = self._loads[self._names[place]]
        load.in_flight += 1
        load.waits(float(new_blocks * _BLOCK_TOKENS))

    def computed(self, place: int, *, new_blocks: int) -> None:
        """Its prompt waits no more."""
        self._loads[self._names[place]].computed(float(new_blocks * _BLOCK_TOKENS))

    def ended(self, place: int, asked: Asked) -> None:  # noqa: ARG002 - Rule
        """It is gone."""
        self._loads[self._names[place]].in_flight -= 1


def simulate(trace: Sequence[Asked], rule: Rule, *, workers: int, blocks: int) -> dict[str, float]:
    """Hits and times of one rule."""
    made = [Worker(most_blocks=blocks) for _ in range(workers)]
    events: list[tuple[float, int, Callable[[], None]]] = []
    ids = itertools.count()
    ttft_s = []
    hits = 0

    def end(place: int, asked: Asked) -> None:
        made[place].requests -= 1
        made[place].decoding_blocks -= len(asked.blocks)
        rule.ended(place, asked)

    for asked in trace:
        while events and events[0][0] <= asked.at_s:
            heapq.heappop(events)[2]()
        place = rule.pick(made, asked)
        worker = made[place]
        match = worker.match(asked.blocks)
        new = len(asked.blocks) - match
        hits += match
        worker.free_s = max(asked.at_s, worker.free_s) + new * _BLOCK_S
        worker.computed_blocks += new
        worker.requests += 1
        worker.decoding_blocks += len(asked.blocks)
        worker.keep(asked.blocks)
        rule.sent(place, asked, new_blocks=new)
        ttft_s.append(worker.free_s - asked.at_s)
        for at_s, what in (
            (worker.free_s, lambda place=place, new=new: rule.computed(place, new_blocks=new)),
            (worker.free_s + asked.output_tokens * _TOKEN_S, lambda place=place, asked=asked: end(place, asked)),
        ):
            heapq.heappush(events, (at_s, next(ids), what))
    ttft_s.sort()
    computed = [worker.computed_blocks for worker in made]
    return {
        "hit_share": round(hits / sum(len(asked.blocks) for asked in trace), 4),
        "ttft_mean_s": round(sum(ttft_s) / len(ttft_s), 3),
        "ttft_p50_s": round(ttft_s[len(ttft_s) // 2], 3),
        "ttft_p99_s": round(ttft_s[len(ttft_s) * 99 // 100], 3),
        "most_against_mean_work": round(max(computed) * workers / sum(computed), 2),
    }


def bound(trace: Sequence[Asked], *, blocks: int) -> float:
    """Share of hits of one cache of so many blocks."""
    pooled, hits = Worker(most_blocks=blocks), 0
    for asked in trace:
        hits += pooled.match(asked.blocks)
        pooled.keep(asked.blocks)
    return round(hits / sum(len(asked.blocks) for asked in trace), 4)


def _read(path: Path, speed: float) -> Iterator[Asked]:
    for line in path.read_text(encoding="utf-8").splitlines():
        said = json.loads(line)
        yield Asked(said["timestamp"] / 1000 / speed, tuple(said["hash_ids"]), said["output_length"])


def main() -> int:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=2000)
    parser.add_argument("--speeds", type=float, nargs="+", default=[1.0, 4.0])
    words = parser.parse_args()
    found = []
    for speed in words.speeds:
        trace = list(_read(words.trace, speed))
        rules = {
            "round_robin": RoundRobin(),
            "least_loaded": LeastLoaded(),
            "cache_aware": CacheAware(words.workers),
            "kv_cost": KvCost(),
            "hpcserve": Ours(words.workers, trace),
        }
        results = {
            name: simulate(trace, rule, workers=words.workers, blocks=words.blocks) for name, rule in rules.items()
        }
        found.append({
            "arrival": f"x{speed:g}",
            "requests": len(trace),
            "hit_share_bound": bound(trace, blocks=words.workers * words.blocks),
            "rules": results,
        })  # fmt: skip
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
