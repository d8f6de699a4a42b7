"""KV on links: the time after prefill, what it is against prefill, prefixes, and pulls that share a link."""

import math

from benchmarks.paper_reproductions.shared import EASY, linear, title
from hpcserve.fabric import Link
from hpcserve.nouns import Role
from hpcserve.simulate import (
    Arrival,
    Deployment,
    Flow,
    Lengths,
    Offered,
    Overlap,
    Scheduling,
    Trace,
    Worker,
    simulate,
)

__all__ = ["links"]

KV_OF_4096 = (
    ("Qwen3-0.6B", 114_688),
    ("Llama-3.1-8B", 131_072),
    ("Llama-3.1-70B", 327_680),
    ("DeepSeek-V3", 70_272),
    ("OPT-66B", 2_359_296),
)
"""Bytes per token: 2 x layers x KV heads x head size x 2, for DeepSeek-V3 (512 + 64) x 61 x 2."""


def links() -> None:
    """Added TTFT per link, the 70B triple, prefixes, and four pulls that share a link."""
    title("KV of 4,096 tokens: ms from the end of prefill to its being there, simulated (formula)")
    for model, per_token in KV_OF_4096:
        cells = []
        for gb_per_s in (0.104, 12.5, 600.0):
            moved = transfer_ms(4096, per_token=per_token, gb_per_s=gb_per_s)
            cells.append(f"{moved:>10.3f} ({4096 * per_token / gb_per_s / 1e6:.3f})")
        print(f"{model:<16} {' '.join(f'{cell:>24}' for cell in cells)}")
    title("Llama2-70B on 8 H100, 4,096 tokens: prefill 390 ms (Splitwise's table)")
    for name, gb_per_s, printed in (
        ("8 rails of 38 GB/s", 304.0, 4.4),
        ("one HDR port", 25.0, 53.7),
        ("25 GbE", 3.125, 429.0),
    ):
        moved = transfer_ms(4096, per_token=327_680, gb_per_s=gb_per_s)
        layers = transfer_ms(4096, per_token=327_680, gb_per_s=gb_per_s, overlap=Overlap(layers=80))
        print(f"{name:<20} expected {printed:>6} simulated {moved:>7.2f}  share of prefill {moved / 390:>6.1%}"
              f"  layer by layer {layers:>7.2f}")  # fmt: skip
    title("More arithmetic of transfers: expected, simulated")
    moved_ms = ", ".join(f"{transfer_ms(8000, per_token=327_680, gb_per_s=rate):.1f}" for rate in (40.0, 10.0, 2.5))
    print(f"8,000 tokens of a 70B at 40, 10, 2.5 GB/s: 65.5, 262, 1049 ms; {moved_ms}")
    print(f"201 blocks of 16 tokens of a 0.6B at 104.25 MiB/s: 3374 ms; "
          f"{transfer_ms(3216, per_token=114_688, gb_per_s=104.25 * 2**20 / 1e9):.0f}; as long as a prefill of 83 ms"
          f" at 4.44 GB/s: {transfer_ms(3216, per_token=114_688, gb_per_s=4.44):.1f}; a tenth of it at 44.4 GB/s:"
          f" {transfer_ms(3216, per_token=114_688, gb_per_s=44.4):.2f}")  # fmt: skip
    print(f"OPT-66B, 512 tokens, 10 requests/s: 12.08 GB/s (the paper's 1.13 GB are GiB); {carried_gb_per_s():.2f}")
    title("Prefixes: share of prefill that is saved")
    for name, cached, hit_rate, printed in (
        ("3,000 of 3,500 cached", 3000, 1.0, 0.857),
        ("70 % of them hit", 3000, 0.7, 0.6),
    ):
        whole, some = (prefill_of(3500, cached=hit, hit_rate=hit_rate) for hit in (0, cached))
        print(f"{name:<24} expected {printed:.1%} simulated {1 - some / whole:.1%}")
    title("Four pulls of 11.8 MB at once over 192 Mbit/s: measured 1.96 to 1.97 s each (vLLM, NIXL, one machine)")
    print(" ".join(f"{one / 1e3:.3f} s" for one in four_pulls()))


def handing_over(*, gb_per_s: float, per_token: int, overlap: Overlap | None = None) -> Deployment:
    """One pair over one link; prefill takes 390 ms for 4,096 tokens."""
    model = linear(prefill_ms_per_token=390.0 / 4096)
    scheduling = Scheduling(token_budget=8192)
    return Deployment(
        workers=(
            Worker(id="p", role=Role.PREFILL, latency=model, scheduling=scheduling),
            Worker(id="d", role=Role.DECODE, latency=model),
        ),
        flows={("p", "d"): (Flow((Link("link", gb_per_s, "named"),), 1.0),)},
        kv_bytes=lambda tokens, ranks: tokens * per_token // ranks,
        overlap=overlap,
    )


def transfer_ms(tokens: int, *, per_token: int, gb_per_s: float, overlap: Overlap | None = None) -> float:
    """From the end of prefill until one request's KV is there, nothing else under way."""
    deployment = handing_over(gb_per_s=gb_per_s, per_token=per_token, overlap=overlap)
    traffic = Trace(seen=(Arrival(0.0, Lengths(tokens, 2)),))
    (record,) = simulate(deployment, traffic, slo=EASY, keep_records=True).records
    return (record.transferred_at_ms or math.nan) - (record.prefilled_at_ms or math.nan)


def carried_gb_per_s() -> float:
    """What a link carries at ten requests a second, one every 100 ms."""
    deployment = handing_over(gb_per_s=100.0, per_token=2_359_296)
    traffic = Offered(rate=10.0, requests=1000, lengths=[Lengths(512, 2)], process="fixed")
    outcome = simulate(deployment, traffic, slo=EASY)
    return outcome.links[0].moved_bytes / 100e9


def prefill_of(tokens: int, *, cached: int, hit_rate: float) -> float:
    """Mean TTFT of requests that come one by one, of which that share has so many tokens cached."""
    worker = Worker(
        id="a", role=Role.AGGREGATED, latency=linear(prefill_ms_per_token=0.1), scheduling=Scheduling(token_budget=8192)
    )
    hits = [index < round(10 * hit_rate) for index in range(10)]
    seen = tuple(Arrival(1e4 * index, Lengths(tokens, 1, cached if hit else 0)) for index, hit in enumerate(hits))
    return simulate(Deployment(workers=(worker,)), Trace(seen=seen), slo=EASY).mean_ttft_ms or math.nan


def four_pulls() -> list[float]:
    """Four requests whose prefill ends at one time; the KV of 512 tokens of 23,040 bytes each."""
    deployment = handing_over(gb_per_s=0.024, per_token=23_040)
    seen = tuple(Arrival(0.0, Lengths(512, 2)) for _ in range(4))
    records = simulate(deployment, Trace(seen=seen), slo=EASY, keep_records=True).records
    return [(record.transferred_at_ms or math.nan) - (record.prefilled_at_ms or math.nan) for record in records]
