"""What `router.borrow` is worth where the load swings between prompts and answers, simulated.

    .venv/bin/python benchmarks/borrowing.py [--requests 4000] [--seeds 5]

Four workers of one speed, two for prefill and two for decode, or all four for both. Poisson arrivals; for a minute
prompts are long and answers short, for the next one the other way round, and so on; beside it a load of the same mean
lengths that does not swing. Prints Markdown tables: means over the seeds that have a value (`-`: none has), the same
requests for all ways of serving.
"""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpcserve.fabric import Link
from hpcserve.latency import LinearLatency
from hpcserve.nouns import Role, Slo
from hpcserve.routing import Preferences
from hpcserve.simulate import Arrival, Deployment, Flow, Lengths, Offered, Outcome, Scheduling, Trace, Worker, simulate

_LATENCY = LinearLatency(
    prefill_base_ms=10.0,
    prefill_ms_per_token=0.1,
    prefill_ms_per_token2=0.0,
    decode_base_ms=15.0,
    decode_ms_per_sequence=0.3,
    decode_ms_per_context_token=0.0002,
    kv_tokens=120_000,
    source="made up: an 8B model on one GPU, about",
    kind="predicted",
)
_KV_BYTES_PER_TOKEN = 131_072
_GB_PER_S = 12.5
_PROMPTS, _ANSWERS = Lengths(4000, 60), Lengths(300, 600)
_EVEN = Lengths(2150, 330)
_SWING_MS = 60_000.0
_SLO = Slo(ttft_ms=2000.0, tpot_ms=50.0)
_WAYS = {
    "prefill and decode apart": Preferences(),
    "`split: when-cheaper`": Preferences(split_when_cheaper=True),
    "`borrow: when-cheaper`": Preferences(borrow_when_cheaper=True),
}


def _worker(role: Role, number: int) -> Worker:
    return Worker(id=f"{role}-{number}", role=role, latency=_LATENCY, scheduling=Scheduling(token_budget=2048))


def _apart() -> Deployment:
    workers = tuple(_worker(role, number) for role in (Role.PREFILL, Role.DECODE) for number in range(2))
    flows = {
        (f"prefill-{here}", f"decode-{there}"): (
            Flow((Link(f"{here} out", _GB_PER_S, "made"), Link(f"{there} in", _GB_PER_S, "made")), 1.0),
        )
        for here in range(2)
        for there in range(2)
    }
    return Deployment(
        workers=workers, flows=flows, kv_bytes=lambda tokens, _: tokens * _KV_BYTES_PER_TOKEN, prefill_ms=225.0
    )


def _together() -> Deployment:
    return Deployment(workers=tuple(_worker(Role.AGGREGATED, number) for number in range(4)), prefill_ms=225.0)


def _swinging(rate: float, requests: int, seed: int) -> Trace:
    """The same arrivals as without a swing; their lengths follow the time."""
    every = Offered(rate=rate, requests=requests, lengths=(_EVEN,)).arrivals(seed)
    return Trace(seen=tuple(_swung(every)))


def _swung(arrivals: Iterator[Arrival]) -> Iterator[Arrival]:
    for each in arrivals:
        yield replace(each, lengths=_ANSWERS if each.at_ms // _SWING_MS % 2 else _PROMPTS)


def _row(name: str, runs: Sequence[Outcome]) -> str:
    def mean(values: Sequence[float | None]) -> str:
        known = [value for value in values if value is not None]
        return f"{statistics.mean(known):,.0f}" if known else "-"

    cells = (
        mean([run.mean_ttft_ms for run in runs]),
        mean([run.ttft_ms.p99 for run in runs]),
        mean([run.mean_tpot_ms for run in runs]),
        mean([run.tpot_ms.p99 for run in runs]),
        mean([run.attainment * 100 for run in runs]),
    )
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rates", default="3,5,7", help="requests/s")
    words = parser.parse_args()
    for rate in map(float, words.rates.split(",")):
        for swings in (True, False):
            print(
                f"\n{rate:g} requests/s, {'swinging' if swings else 'even'}, {words.seeds} seeds of {words.requests}\n"
            )
            print("| | TTFT mean, ms | p99 | TPOT mean, ms | p99 | attainment % |\n|---|---|---|---|---|---|")
            traffics = [
                _swinging(rate, words.requests, seed)
                if swings
                else Trace(seen=tuple(Offered(rate=rate, requests=words.requests, lengths=(_EVEN,)).arrivals(seed)))
                for seed in range(words.seeds)
            ]
            for name, preferences in _WAYS.items():
                deployment = replace(_apart(), preferences=preferences)
                print(_row(name, [simulate(deployment, traffic, slo=_SLO) for traffic in traffics]))
            print(_row("all four for both", [simulate(_together(), traffic, slo=_SLO) for traffic in traffics]))


if __name__ == "__main__":
    main()
