"""How fast and how large the KV index is, beside Dynamo's RadixTree where that is installed, on the same work.

    .venv/bin/python benchmarks/kv_index.py [--dynamo PYTHON] [--rounds 3] [--wall]

PYTHON: an interpreter that has ai-dynamo-runtime. Both run in processes of their own, one after the other in each
round; what counts is the ratio within a round. The work: 100,000 blocks of 8 workers in prompts of 128 blocks, all
different or with the first 64 in common; 2,000 queries of each kind. Dynamo's binding takes events as JSON with hashes
that are made already; the `wire` row is hpcserve's own way from msgpack bytes with tokens. Dynamo's tree works in a
thread of its own, so a query stands at the end of each timed write, as a barrier. Rates are by CPU time of all threads,
which other load on the machine hardly moves, or with --wall by the wall clock.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

WORKERS, PROMPT_BLOCKS, BLOCKS, QUERIES, BLOCK_SIZE = 8, 128, 100_000, 2_000, 16
SHARED = (0, 64)
WALL = "--wall"
MANY_BLOCKS, MANY_WORKERS = 1_000_000, 64

Prompt = tuple[list[int], list[int], int]
"""(names of the blocks by their tokens, the engine's names, worker)."""


def prompts(shared: int, dice: random.Random) -> list[Prompt]:
    """The prompts, their first `shared` blocks in common."""
    common, engine_common = ([dice.getrandbits(60) for _ in range(shared)] for _ in range(2))
    rest = PROMPT_BLOCKS - shared
    return [
        (
            common + [dice.getrandbits(60) for _ in range(rest)],
            engine_common + [dice.getrandbits(63) for _ in range(rest)],
            number % WORKERS,
        )
        for number in range(BLOCKS // rest)
    ]


def queries(made: list[Prompt], dice: random.Random) -> dict[str, list[list[int]]]:
    """Prompts to ask for: wholly there, half there, not there."""
    full = [dice.choice(made)[0] for _ in range(QUERIES)]
    half = [[*keys[:64], *(dice.getrandbits(60) for _ in range(64))] for keys in full]
    miss = [[dice.getrandbits(60) for _ in range(PROMPT_BLOCKS)] for _ in range(QUERIES)]
    return {"find, all there": full, "find, half there": half, "find, not there": miss}


def per_second(count: int, work: Callable[[], object]) -> float:
    """How often per second, by the clock that was asked for."""
    clock = time.perf_counter if WALL in sys.argv else time.process_time
    start = clock()
    work()
    return count / (clock() - start)


def find_rates(find: Callable[[list[int]], object], asked: dict[str, list[list[int]]]) -> dict[str, float]:
    """How often per second each kind of query is answered."""

    def every(wanted: list[list[int]]) -> None:
        for keys in wanted:
            find(keys)

    return {kind: per_second(len(wanted), partial(every, wanted)) for kind, wanted in asked.items()}


def ours(shared: int) -> dict[str, float]:
    """The rates of hpcserve's index."""
    from hpcserve.routing import Intake, KvIndex, read_batch  # noqa: PLC0415 - Dynamo's process has no hpcserve

    dice = random.Random(7)  # noqa: S311 - repeatable
    made = prompts(shared, dice)
    asked = queries(made, dice)
    names = [f"prefill-{number}" for number in range(WORKERS)]
    index = KvIndex()

    def store() -> None:
        for keys, engine_keys, worker in made:
            index.store(names[worker], engine_keys, keys)
        index.find(made[0][0])

    rates = {"store 128 blocks": per_second(len(made), store), **find_rates(index.find, asked)}
    single = [(names[w], [dice.getrandbits(63)], [dice.getrandbits(60)]) for _ in range(4) for *_, w in made]

    def store_single() -> None:
        for worker, engine_keys, keys in single:
            index.store(worker, engine_keys, keys)
        index.find(made[0][0])

    rates["store 1 block"] = per_second(len(single), store_single)

    def remove() -> None:
        for _, engine_keys, worker in made:
            index.remove(names[worker], engine_keys[-8:])
        index.find(made[0][0])

    rates["remove 8 blocks"] = per_second(len(made), remove)
    payloads = _payloads(made, dice)
    intakes = {worker: Intake(KvIndex(), names[worker]) for worker in range(WORKERS)}

    def wire() -> None:
        for worker, payload in payloads:
            intakes[worker].take(read_batch(payload))

    rates["wire: 128 blocks with tokens"] = per_second(len(payloads), wire)
    return rates


def _payloads(made: list[Prompt], dice: random.Random) -> list[tuple[int, bytes]]:
    import msgspec  # noqa: PLC0415 - Dynamo's process has none

    def event(engine_keys: list[int]) -> dict[str, Any]:
        return {
            "type": "BlockStored",
            "block_hashes": engine_keys,
            "parent_block_hash": None,
            "token_ids": [dice.randrange(32_000) for _ in range(PROMPT_BLOCKS * BLOCK_SIZE)],
            "block_size": BLOCK_SIZE,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": [None] * PROMPT_BLOCKS,
            "group_idx": 0,
        }

    return [(worker, msgspec.msgpack.encode([0.0, [event(keys)], 0])) for _, keys, worker in made[:400]]


def theirs(shared: int) -> dict[str, float]:
    """The rates of Dynamo's binding."""
    from dynamo._core import RadixTree  # type: ignore[import-not-found]  # noqa: PLC0415 - not everywhere

    dice = random.Random(7)  # noqa: S311 - repeatable
    made = prompts(shared, dice)
    asked = queries(made, dice)
    tree = RadixTree()
    number = 0

    def event(data: dict[str, Any]) -> bytes:
        nonlocal number
        number += 1
        return json.dumps({"event_id": number, "data": data, "dp_rank": 0}).encode()

    def stored(parent: int | None, keys: list[int], engine_keys: list[int]) -> bytes:
        blocks = [{"block_hash": engine, "tokens_hash": key} for key, engine in zip(keys, engine_keys, strict=True)]
        return event({"stored": {"parent_hash": parent, "blocks": blocks}})

    def apply(events: list[tuple[int, bytes]]) -> None:
        for worker, text in events:
            tree.apply_event(worker, text)
        tree.find_matches(made[0][0])

    events = [(worker, stored(None, keys, engine_keys)) for keys, engine_keys, worker in made]
    rates = {"store 128 blocks": per_second(len(events), lambda: apply(events))}
    if not tree.find_matches(made[5][0]).scores:
        raise SystemExit("Dynamo's tree found nothing")
    rates |= find_rates(tree.find_matches, asked)
    parents = [engine_keys[-1] for _, engine_keys, _ in made]
    single = []
    for _ in range(4):
        for place, (*_, worker) in enumerate(made):
            name = dice.getrandbits(63)
            single.append((worker, stored(parents[place], [dice.getrandbits(60)], [name])))
            parents[place] = name
    rates["store 1 block"] = per_second(len(single), lambda: apply(single))
    removed = [(worker, event({"removed": {"block_hashes": keys[-8:]}})) for _, keys, worker in made]
    rates["remove 8 blocks"] = per_second(len(removed), lambda: apply(removed))
    return rates


def large() -> dict[str, float]:
    """Memory of the whole process at a million blocks of 64 workers, and the longest pause while one is dropped."""
    from hpcserve.routing import KvIndex  # noqa: PLC0415 - as above

    dice = random.Random(7)  # noqa: S311 - repeatable
    empty_mb = _resident_mb()
    index = KvIndex()
    for number in range(MANY_BLOCKS // PROMPT_BLOCKS):
        keys = [dice.getrandbits(60) for _ in range(PROMPT_BLOCKS)]
        engine_keys = [dice.getrandbits(64) for _ in range(PROMPT_BLOCKS)]
        index.store(f"prefill-{number % MANY_WORKERS}", engine_keys, keys)
    blocks, full_mb = index.blocks, _resident_mb()
    index.clear("prefill-0")
    pauses = []
    more = True
    while more:
        start = time.perf_counter()
        more = index.sweep()
        pauses.append((time.perf_counter() - start) * 1000)
    return {
        "blocks": blocks,
        "process without an index, MB": empty_mb,
        "process with it, MB": full_mb,
        "slices to drop one worker": len(pauses),
        "longest slice, ms": max(pauses),
    }


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096 / 1e6


def _in_process(python: str, part: str, shared: int = 0) -> dict[str, float]:
    argv = [python, __file__, "--part", part, "--shared", str(shared), *([WALL] if WALL in sys.argv else [])]
    done = subprocess.run(argv, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python} --part {part} failed:\n{done.stderr.decode(errors='replace')}")
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dynamo", metavar="PYTHON", help="an interpreter that has ai-dynamo-runtime")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(WALL, action="store_true", help="rates by the wall clock instead of CPU time")
    parser.add_argument("--part", choices=("ours", "theirs", "large"), help=argparse.SUPPRESS)
    parser.add_argument("--shared", type=int, default=0, help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.part:
        parts = {"ours": lambda: ours(words.shared), "theirs": lambda: theirs(words.shared), "large": large}
        print(json.dumps(parts[words.part]()))
        return
    for shared in SHARED:
        kind = f"the first {shared} blocks in common" if shared else "all different"
        second = "second" if words.wall else "second of CPU"
        print(f"prompts of {PROMPT_BLOCKS} blocks, {kind}; per {second}, median of {words.rounds} [least..most]")
        rounds = []
        for _ in range(words.rounds):
            mine = _in_process(sys.executable, "ours", shared)
            rounds.append((mine, _in_process(words.dynamo, "theirs", shared) if words.dynamo else {}))
        for row in rounds[0][0]:
            rates = [mine[row] for mine, _ in rounds]
            line = f"  {row:30}{median(rates):12,.0f} [{min(rates):,.0f}..{max(rates):,.0f}]"
            if row in rounds[0][1]:
                ratios = [mine[row] / other[row] for mine, other in rounds]
                others = median([other[row] for _, other in rounds])
                line += f"   Dynamo {others:,.0f}   ratio {median(ratios):.2f} [{min(ratios):.2f}..{max(ratios):.2f}]"
            print(line)
    print("a large index")
    for name, value in _in_process(sys.executable, "large").items():
        print(f"  {name:30}{value:12,.1f}")


if __name__ == "__main__":
    main()
