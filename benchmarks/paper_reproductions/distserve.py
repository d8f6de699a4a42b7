"""DistServe (Zhong et al., OSDI 2024): its measured runs, its artefact's example, its table 3."""

import ast
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper_reproductions.shared import title
from hpcserve.latency import Chunk, Kind, LatencyModel, distserve
from hpcserve.nouns import Role, Slo
from hpcserve.simulate import Arrival, Deployment, Lengths, Offered, Scheduling, Trace, Worker, simulate

__all__ = ["distserve_artefact", "distserve_measured", "distserve_table_3"]

NO_END = 10**7
SEEDS = 10
DISTSERVE_SLO = Slo(ttft_ms=200.0, tpot_ms=100.0)


@dataclass(frozen=True)
class Pipelined:
    """A worker of several equal stages; what `distserve` gives is one stage. A decode batch goes in as many parts."""

    stage: LatencyModel
    stages: int

    @property
    def source(self) -> str:
        """Of the stage."""
        return self.stage.source

    @property
    def kind(self) -> Kind:
        """Of the stage."""
        return self.stage.kind

    @property
    def kv_tokens(self) -> int | None:
        """Of the worker."""
        return self.stage.kv_tokens

    def prefill_ms(self, chunks: Sequence[Chunk]) -> float:
        """Through all stages."""
        return self.stages * self.stage.prefill_ms(chunks)

    def decode_ms(self, sequences: int, context_tokens: int) -> float:
        """Each part goes through all stages, one behind the other."""
        parts = min(self.stages, sequences) or 1
        return self.stages * self.stage.decode_ms(math.ceil(sequences / parts), math.ceil(context_tokens / parts))

    def step_ms(self, chunks: Sequence[Chunk], sequences: int, context_tokens: int) -> float:
        """Prefill goes first and decode after it, as in DistServe and in the vLLM of its time."""
        return (self.prefill_ms(chunks) if chunks else 0.0) + self.decode_ms(sequences, context_tokens)


@dataclass(frozen=True)
class Measured:
    """One of DistServe's runs on A100: the requests as they came, and what they met."""

    seen: tuple[Arrival, ...]
    ttfts_ms: tuple[float, ...]
    tpots_ms: tuple[float, ...]

    @property
    def attainment(self) -> float:
        """Share of requests within 200 ms and 100 ms."""
        both = zip(self.ttfts_ms, self.tpots_ms, strict=True)
        return sum(DISTSERVE_SLO.is_met(ttft_ms=ttft, tpot_ms=tpot) for ttft, tpot in both) / len(self.seen)


def measured_run(path: Path) -> Measured:
    """A list of dictionaries on one line."""
    rows = sorted(ast.literal_eval(path.read_text().splitlines()[0]), key=lambda row: row["issue_time"])
    first = rows[0]["issue_time"]
    return Measured(
        seen=tuple(
            Arrival((row["issue_time"] - first) * 1e3, Lengths(row["prompt_len"], row["output_len"])) for row in rows
        ),
        ttfts_ms=tuple(row["ttft_ms"] for row in rows),
        tpots_ms=tuple(row["tpot_ms"] for row in rows),
    )


def pair(model: str, prefill: tuple[int, int], decode: tuple[int, int]) -> Deployment:
    """One prefill and one decode instance of these (TP, PP), scheduled as the published simulator does it."""

    def made(role: Role, shape: tuple[int, int]) -> Worker:
        stage = distserve(model, shape[0], stages=shape[1], simulator=True)
        if stage.kv_tokens is None:
            raise KeyError(shape)
        return Worker(
            id=role,
            role=role,
            latency=Pipelined(stage, shape[1]),
            scheduling=Scheduling(
                token_budget=stage.kv_tokens, max_sequences=NO_END, chunked=False, kv_policy="preempt"
            ),
            gpus=shape[0] * shape[1],
            stages=shape[1] if role == Role.PREFILL else 1,
        )

    return Deployment(
        workers=(made(Role.PREFILL, prefill), made(Role.DECODE, decode)),
        flows={(Role.PREFILL, Role.DECODE): ()},
        first_token_by=Role.PREFILL,
    )


def vllm_of_its_time(model: str) -> Deployment:
    """One aggregated worker on one GPU with the profile of the vLLM that DistServe was compared with."""
    stage = distserve(model, 1, engine="vllm", simulator=True)
    worker = Worker(
        id="vllm",
        role=Role.AGGREGATED,
        latency=Pipelined(stage, 1),
        scheduling=Scheduling(token_budget=2560, chunked=False, mixed=False),
    )
    return Deployment(workers=(worker,))


def poisson(lengths: Sequence[Lengths], *, rate: float, seed: int) -> Trace:
    """These very requests, in this order, at Poisson arrivals."""
    moments = Offered(rate=rate, requests=len(lengths), lengths=lengths[:1]).arrivals(seed)
    return Trace(seen=tuple(Arrival(one.at_ms, each) for one, each in zip(moments, lengths, strict=True)))


def per_gpu_rates(
    model: str, gpus: int, slo: Slo, lengths: Sequence[Lengths], *, most: float, step: float, seed: int
) -> Iterator[tuple[float, int, tuple[int, int], tuple[int, int]]]:
    """(requests/s per GPU, GPUs, prefill (TP, PP), decode (TP, PP)) of every pair that fits, by bisection of [0, most].

    As the published search: the 90th percentiles of TTFT and TPOT must hold, each by itself.
    """
    shapes = [(tp, pp) for tp in (1, 2, 4, 8) for pp in (1, 2, 4) if tp * pp < gpus]
    for prefill, decode in itertools.product(shapes, shapes):
        used = prefill[0] * prefill[1] + decode[0] * decode[1]
        if used > gpus:
            continue
        try:
            deployment = pair(model, prefill, decode)
        except KeyError:  # no profile, or no room for the weights
            continue
        low, high = 0.0, most
        while high - low >= step:
            middle = (low + high) / 2
            outcome = simulate(deployment, poisson(lengths, rate=middle * used, seed=seed), slo=slo)
            ttft_ms, tpot_ms = outcome.ttft_ms.p90 or 0.0, outcome.tpot_ms.p90 or 0.0
            if ttft_ms < slo.ttft_ms and tpot_ms < slo.tpot_ms:
                low = middle
            else:
                high = middle
        yield low, used, prefill, decode


def best_of(found: Iterable[tuple[float, int, tuple[int, int], tuple[int, int]]]) -> list[str]:
    """The three best, the best rate first, fewer GPUs first among equals."""
    ordered = sorted(found, key=lambda one: (-one[0], one[1]))
    return [f"P{prefill} D{decode} {rate:.2f}/s per GPU" for rate, _, prefill, decode in ordered[:3]]


def distserve_artefact(runs: Path) -> None:
    """The README of simdistserve: 1.56 requests/s per GPU, TP 2 for prefill, 1 for decode."""
    lengths = lengths_of(runs)
    title("DistServe's artefact: OPT-13B, 4 A100, 200 / 100 ms, N = 300; printed P(2, 1) D(1, 1) 1.56/s per GPU")
    rates, chosen = [], []
    for seed in range(SEEDS):
        found = list(per_gpu_rates("opt-13b", 4, DISTSERVE_SLO, lengths, most=5.0, step=0.25, seed=seed))
        print(f"seed {seed}: {'; '.join(best_of(found))}", flush=True)
        rates.append(max(found, key=lambda one: (one[0], -one[1]))[0])
        chosen.append(best_of(found)[0].startswith("P(2, 1) D(1, 1)"))
    mean, spread = statistics.fmean(rates), statistics.stdev(rates)
    print(
        f"{SEEDS} seeds of the arrivals: mean {mean:.2f}, deviation {spread:.2f}, from {min(rates):.2f} to"
        f" {max(rates):.2f}; P(2, 1) D(1, 1) is the best of {sum(chosen)}"
    )


def lengths_of(runs: Path) -> list[Lengths]:
    """The 300 ShareGPT requests of the runs."""
    return [one.lengths for one in measured_run(runs / "distserve-c21d11-300-3.exp").seen]


def distserve_measured(runs: Path) -> None:
    """The very requests of measured runs, at their very times: share within 200 and 100 ms, and percentiles."""
    title("OPT-13B on A100: measured by DistServe's authors, and simulated with the same requests at the same times")
    print(f"{'run':<30} {'attainment %':>16} {'TTFT p50':>14} {'TTFT p90':>16} {'TPOT p50':>14} {'TPOT p90':>14}")
    for system, deployment in (
        ("distserve-c21d11", pair("opt-13b", (2, 1), (1, 1))),
        ("distserve-c21d12", pair("opt-13b", (2, 1), (1, 2))),
        ("vllm", vllm_of_its_time("opt-13b")),
    ):
        gaps = []
        for path in sorted(runs.glob(f"{system}-*.exp"), key=rate_and_count):
            real = measured_run(path)
            made = simulate(deployment, Trace(seen=real.seen), slo=DISTSERVE_SLO)
            gaps.append(100 * (made.attainment - real.attainment))
            print(f"{path.stem:<30} {100 * real.attainment:>8.1f} {100 * made.attainment:>7.1f}"
                  f" {cells(real.ttfts_ms, 0.5, made.ttft_ms.p50)} {cells(real.ttfts_ms, 0.9, made.ttft_ms.p90)}"
                  f" {cells(real.tpots_ms, 0.5, made.tpot_ms.p50)} {cells(real.tpots_ms, 0.9, made.tpot_ms.p90)}",
                  flush=True)  # fmt: skip
        gap = math.sqrt(statistics.fmean(one**2 for one in gaps))
        print(f"{system}: root mean square of {len(gaps)} gaps {gap:.1f} points")


def rate_and_count(path: Path) -> tuple[float, int]:
    """From a name such as distserve-c21d11-300-4.5."""
    words = path.stem.split("-")
    return float(words[-1]), int(words[-2])


def cells(real: Sequence[float], share: float, made: float | None) -> str:
    """Measured and simulated, side by side."""
    return f"{sorted(real)[math.ceil(share * len(real)) - 1]:>8.0f} {made or math.nan:>6.0f}"


def distserve_table_3(runs: Path) -> None:
    """Which parallelism is best for one prefill and one decode instance."""
    lengths = lengths_of(runs)
    title("DistServe's table 3, ShareGPT lengths; SLOs of its table 1, for OPT-66B those of its artefact too")
    for model, gpus, slo, printed in (
        ("opt-13b", 4, Slo(ttft_ms=250.0, tpot_ms=100.0), "P(2, 1) D(1, 1)"),
        ("opt-13b", 8, Slo(ttft_ms=250.0, tpot_ms=100.0), "P(2, 1) D(1, 1)"),
        ("opt-66b", 8, Slo(ttft_ms=2500.0, tpot_ms=150.0), "P(4, 1) D(2, 2)"),
        ("opt-66b", 8, Slo(ttft_ms=400.0, tpot_ms=100.0), "P(4, 1) D(2, 2)"),
    ):
        found = per_gpu_rates(model, gpus, slo, lengths, most=5.0 if model == "opt-13b" else 2.0, step=0.01, seed=0)
        case = f"{model}, {gpus} GPUs, {slo.ttft_ms:g} / {slo.tpot_ms:g} ms, printed {printed}"
        print(f"{case}: {'; '.join(best_of(found))}", flush=True)
