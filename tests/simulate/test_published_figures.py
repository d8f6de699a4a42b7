"""Arithmetic that others have printed, by simulation: KV bytes over a link, and what it is against prefill."""

import pytest

from hpcserve.fabric import Link
from hpcserve.nouns import Role
from hpcserve.simulate import Arrival, Deployment, Flow, Lengths, Overlap, Scheduling, Trace, Worker, simulate
from tests.simulate import made

WHOLE = Scheduling(token_budget=8192)
PREFILL_MS_OF_4096 = 390.0
"""Llama2-70B on 8 H100: the table published with Splitwise (Patel et al., ISCA 2024)."""


def waited_ms(tokens: int, *, per_token: int, gb_per_s: float, overlap: Overlap | None = None) -> float:
    """From the end of prefill until the KV is there."""
    model = made.latency(prefill_ms_per_token=PREFILL_MS_OF_4096 / 4096)
    deployment = Deployment(
        workers=tuple(
            Worker(id=role, role=role, latency=model, scheduling=WHOLE) for role in (Role.PREFILL, Role.DECODE)
        ),
        flows={(Role.PREFILL, Role.DECODE): (Flow((Link("link", gb_per_s, "named"),), 1.0),)},
        kv_bytes=lambda count, ranks: count * per_token // ranks,
        overlap=overlap,
    )
    traffic = Trace(seen=(Arrival(0.0, Lengths(tokens, 2)),))
    (record,) = simulate(deployment, traffic, slo=made.EASY, keep_records=True).records
    assert record.prefilled_at_ms is not None
    assert record.transferred_at_ms is not None
    return record.transferred_at_ms - record.prefilled_at_ms


@pytest.mark.parametrize(
    ("tokens", "per_token", "gb_per_s", "ms"),
    [
        (4096, 114_688, 0.104, 4517.0),  # Qwen3-0.6B: 2 * 28 layers * 8 heads * 128 * 2 bytes
        (4096, 114_688, 12.5, 37.58),
        (4096, 131_072, 12.5, 42.95),  # Llama-3.1-8B
        (4096, 2_359_296, 600.0, 16.106),  # OPT-66B
        (8000, 327_680, 40.0, 65.54),  # Llama-3.1-70B
        (8000, 327_680, 10.0, 262.1),
        (8000, 327_680, 2.5, 1048.6),
        (3216, 114_688, 104.25 * 2**20 / 1e9, 3374.0),
        (3216, 114_688, 4.44, 83.07),  # as long as its prefill of 83 ms
        (3216, 114_688, 44.4, 8.307),  # a tenth of it
        (4096, 327_680, 304.0, 4.415),  # 70B on 8 GPUs: 8 rails of 38 GB/s, one HDR port, 25 GbE
        (4096, 327_680, 25.0, 53.69),
        (4096, 327_680, 3.125, 429.5),
    ],
)
def test_kv_over_a_link(tokens: int, per_token: int, gb_per_s: float, ms: float) -> None:
    assert waited_ms(tokens, per_token=per_token, gb_per_s=gb_per_s) == pytest.approx(ms, rel=5e-4)


@pytest.mark.parametrize(("gb_per_s", "ms"), [(25.0, 53.687 / 80), (3.125, 429.497 - 390.0)])
def test_layer_by_layer_what_is_left_is_the_last_layer_or_what_the_link_could_not_keep_up_with(
    gb_per_s: float, ms: float
) -> None:
    waited = waited_ms(4096, per_token=327_680, gb_per_s=gb_per_s, overlap=Overlap(layers=80))
    assert waited == pytest.approx(ms, rel=1e-3)


@pytest.mark.parametrize(("hits", "saved"), [(10, 3000 / 3500), (7, 0.6)])
def test_a_cached_prefix_of_3000_of_3500_tokens_saves_its_share_of_prefill(hits: int, saved: float) -> None:
    cached = [3000] * hits + [0] * (10 - hits)
    seen = tuple(Arrival(1e5 * number, Lengths(3500, 1, each)) for number, each in enumerate(cached))
    alone = made.aggregated(scheduling={"token_budget": 8192})
    assert simulate(alone, Trace(seen=seen), slo=made.EASY).mean_ttft_ms == pytest.approx(3500 * (1 - saved))
