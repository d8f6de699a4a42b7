"""Splitwise (Patel et al., ISCA 2024): how many machines for prompts, how many for tokens."""

import itertools
import math
import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper_reproductions.shared import EASY, title
from hpcserve.fabric import Link
from hpcserve.latency import Chunk, LatencyModel, model_of, splitwise_latency
from hpcserve.nouns import Role
from hpcserve.simulate import Deployment, Flow, Lengths, Offered, Overlap, Scheduling, Worker, azure_trace, simulate

__all__ = ["splitwise_pools"]

BLOOM_KV_BYTES = 4_014_080
"""Per token: 2 x 70 layers x 112 heads x 128 x 2 bytes."""
BLOOM_WEIGHTS_BYTES = 352e9
"""176e9 of 2 bytes, on 8 GPUs of 80 GB."""
DGX_GB_PER_S = {"h100-80gb": 400.0, "a100-80gb": 200.0}
"""Eight ports of 400 or 200 Gbit/s, one for each GPU."""
SLOWDOWNS = {"ttft": (2.0, 3.0, 6.0), "tpot": (1.25, 1.5, 5.0), "latency": (1.25, 1.5, 5.0)}
"""Splitwise's table 6: at P50, P90 and P99, against an idle DGX-A100."""
CONVERSATION = ((0.0, 20, 5), (0.5, 1020, 129), (0.9, 2734, 424), (0.99, 4142, 601), (1.0, 14050, 1000))
"""Quantiles of the conversation trace (share, input, output), a substitute for it: drawn apart; between them inputs
geometrically and outputs straight. 4,000 draws have means of 1,229 and 199 tokens, the trace 1,155 and 211."""
RATE_WITHIN = 0.03
"""Of the highest rate: where its search ends."""


def splitwise_pools(table: Path, azure_code: Path) -> None:
    """The best split of 40 DGX-H100 (and of 70 DGX-A100) into prompt and token machines, BLOOM-176B."""
    text = table.read_text()
    profiles = {
        hardware: splitwise_latency(text, source=table.name, model="bloom-176b", hardware=hardware, tensor_parallel=8)
        for hardware in ("a100-80gb", "h100-80gb")
    }
    code = [one.lengths for one in azure_trace(azure_code.read_text(), source=azure_code.name).seen]
    traffics = {"coding": code, "conversation": conversation(4000)}
    title("Splitwise: machines for prompts + for tokens, and the highest rate that meets all nine SLOs")
    for workload, hardware, machines, used, printed, tried in (
        ("coding", "h100-80gb", 40, 0.9, "35 + 5", (31, 33, 35, 36, 37)),
        ("conversation", "h100-80gb", 40, 0.9, "25 + 15", (17, 19, 21, 23, 25, 27)),
        ("conversation", "h100-80gb", 40, 1.0, "25 + 15", (17, 19, 21, 23, 25, 27)),
        ("conversation", "h100-80gb", 40, 10.0, "25 + 15", (17, 19, 21, 23, 25, 27)),
        ("coding", "a100-80gb", 70, 0.9, "55 + 15", (52, 55, 58, 61)),
    ):
        room = int((8 * 80e9 * used - BLOOM_WEIGHTS_BYTES) / BLOOM_KV_BYTES)
        rates = {
            prompts: pool_rate(
                model_of(profiles[hardware].model_copy(update={"kv_tokens": room})),
                model_of(profiles["a100-80gb"]),
                traffics[workload],
                gb_per_s=DGX_GB_PER_S[hardware],
                prompts=prompts,
                tokens=machines - prompts,
            )
            for prompts in tried
        }
        best = max(rates, key=lambda prompts: rates[prompts])
        print(f"{workload} on {machines} {hardware}, {used:.0%} of memory: printed {printed}, simulated {best} +"
              f" {machines - best}; " + ", ".join(f"{p} + {machines - p}: {rate:.0f}/s" for p, rate in rates.items()),
              flush=True)  # fmt: skip


def conversation(count: int) -> list[Lengths]:
    """Lengths by inverse transform of the quantiles; seeded, as it stands for a data set."""
    source = random.Random(0)  # noqa: S311 - lengths, not secrets
    return [Lengths(drawn(source.random(), 1), drawn(source.random(), 2)) for _ in range(count)]


def drawn(share: float, column: int) -> int:
    """The quantile of that share, between those that are known."""
    for low, high in itertools.pairwise(CONVERSATION):
        if share <= high[0]:
            part = (share - low[0]) / (high[0] - low[0])
            if column == 1:
                return round(low[1] * math.pow(high[1] / low[1], part))
            return round(low[2] + part * (high[2] - low[2]))
    raise AssertionError(share)


def pool_rate(
    model: LatencyModel,
    idle: LatencyModel,
    lengths: Sequence[Lengths],
    *,
    gb_per_s: float,
    prompts: int,
    tokens: int,
) -> float:
    """The highest rate, within 3 %, at which all nine hold for 2,000 requests in a row."""
    batches = Scheduling(token_budget=2048, chunked=False, max_sequences=512)
    workers = [
        Worker(id=f"{role}-{n}", role=role, latency=model, scheduling=batches, gpus=8)
        for role, count in ((Role.PREFILL, prompts), (Role.DECODE, tokens))
        for n in range(count)
    ]
    flows = {
        (here.id, there.id): (
            Flow((Link(f"{here.id} out", gb_per_s, "NIC"), Link(f"{there.id} in", gb_per_s, "NIC")), 1.0),
        )
        for here in workers
        for there in workers
        if (here.role, there.role) == (Role.PREFILL, Role.DECODE)
    }
    deployment = Deployment(
        workers=tuple(workers),
        flows=flows,
        kv_bytes=lambda count, ranks: count * BLOOM_KV_BYTES // ranks,
        first_token_by=Role.PREFILL,
        overlap=Overlap(layers=70, least_tokens=512),
        prefill_ms=200.0,
        decode_step_ms=5.0,
    )
    low, high = 1.0, 400.0
    while high / low > 1 + RATE_WITHIN:
        middle = math.sqrt(low * high)
        if all_nine(deployment, idle, Offered(rate=middle, requests=2000, lengths=lengths)):
            low = middle
        else:
            high = middle
    return low


def all_nine(deployment: Deployment, idle: LatencyModel, traffic: Offered) -> bool:
    """Whether the slowdowns of TTFT, TPOT and latency hold at all three percentiles."""
    outcome = simulate(deployment, traffic, slo=EASY, keep_records=True)
    slow: dict[str, list[float]] = {name: [] for name in SLOWDOWNS}
    for record in outcome.records:
        if record.ttft_ms is None:
            return False
        first = idle.prefill_ms([Chunk(record.input_tokens, 0)])
        step = idle.decode_ms(1, record.input_tokens + record.output_tokens // 2)
        rest = (record.tpot_ms or 0.0) * (record.output_tokens - 1)
        slow["ttft"].append(record.ttft_ms / first)
        if record.tpot_ms is not None:
            slow["tpot"].append(record.tpot_ms / step)
        slow["latency"].append((record.ttft_ms + rest) / (first + step * (record.output_tokens - 1)))
    return all(
        sorted(values)[math.ceil(share * len(values)) - 1] <= limit
        for name, values in slow.items()
        for share, limit in zip((0.5, 0.9, 0.99), SLOWDOWNS[name], strict=True)
    )
