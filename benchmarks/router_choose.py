"""What one choice costs the router, by the number of workers: it must not grow with them.

    python -m benchmarks.router_choose [--choices 400] [--rounds 7]

Half of the workers prefill, half decode, all pairs proved, every path another time, every queue another length. Once
without anything known of prefixes, once with eight workers that hold some of the prompt. Prints JSON: microseconds per
choice (least and median of the rounds), milliseconds of making the table anew, and each against the smallest service.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from typing import Any

from hpcserve.nouns import Role
from hpcserve.routing import Demand, Load, Table, Typical, choose, pair_of, table_of
from tests.routing.test_choose import endpoint

_WORKERS = (4, 16, 64, 250, 1000)
_TYPICAL = Typical(prefill_ms=200.0, decode_step_ms=20.0, prompt_tokens=1000.0, answer_tokens=100.0)


def _service(workers: int) -> tuple[Table, dict[str, Load], float]:
    half = workers // 2
    prefills = [endpoint(Role.PREFILL, number) for number in range(half)]
    decodes = [endpoint(Role.DECODE, number) for number in range(half)]
    paths = {(p.id, d.id): 5.0 + (7 * i + 3 * j) % 50 for i, p in enumerate(prefills) for j, d in enumerate(decodes)}
    proved = {pair_of(p, d) for p in prefills for d in decodes}
    began_s = time.process_time()
    table = table_of([*prefills, *decodes], transfer_ms=paths, proved=proved)
    made_ms = (time.process_time() - began_s) * 1000
    loads = {
        each.id: Load(in_flight=number % 5, prefill_tokens=number * 37 % 900, kv_tokens=1000, kv_room_tokens=100_000)
        for number, each in enumerate((*prefills, *decodes))
    }
    return table, loads, made_ms


def _choices_us(table: Table, loads: dict[str, Load], demand: Demand, *, choices: int, rounds: int) -> dict[str, float]:
    found = []
    for _ in range(rounds):
        began_s = time.process_time()
        for turn in range(choices):
            choose(table, loads, _TYPICAL, model="tiny", turn=turn, demand=demand)
        found.append((time.process_time() - began_s) / choices * 1e6)
    return {"least": round(min(found), 2), "median": round(statistics.median(found), 2)}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--choices", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    words = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for workers in _WORKERS:
        table, loads, made_ms = _service(workers)
        held = {row.prefill.id: 100 for row in table.rows[:8]}
        cases = {"plain": Demand(800.0, 100.0), "prefixes": Demand(800.0, 100.0, held)}
        times = {
            name: _choices_us(table, loads, demand, choices=words.choices, rounds=words.rounds)
            for name, demand in cases.items()
        }
        rows.append({"workers": workers, "choice_us": times, "table_ms": round(made_ms, 2)})
    first = rows[0]["choice_us"]["plain"]["least"]
    for row in rows:
        row["against_the_smallest"] = round(row["choice_us"]["plain"]["least"] / first, 2)
    said = {"python": platform.python_version(), "choices": words.choices, "rounds": words.rounds, "rows": rows}
    sys.stdout.write(json.dumps(said, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
