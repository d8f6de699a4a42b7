"""A `Judgement` as terminal text."""

from collections.abc import Iterator

from benchmarks.prediction.judge import Judgement
from benchmarks.prediction.replay import Compared, Point
from hpcserve.draw import text_table
from hpcserve.nouns import Residual

__all__ = ["page"]

_COLUMNS = (
    "placement", "load", "n", "shared",
    "KV ms predicted", "KV ms measured", "KV off",
    "TTFT ms predicted", "TTFT ms measured", "TTFT off",
    "good predicted", "good measured",
)  # fmt: skip


def page(judgement: Judgement) -> str:
    """All of it: each point, both rankings, each criterion with its numbers."""
    latency = judgement.latency
    engine = "measured: the simulated engine's own clock and counters, no hardware's" * judgement.simulated
    lines = [
        f"predicted: fitted on {judgement.fitted_on} ({latency.source}), then simulated with the arrivals of each run",
        engine or "measured: samples and engine counters of the runs",
        f"fit: prefill {_residual(latency.prefill.residual)}; decode {_residual(latency.decode.residual)}",
        "KV: one transfer, alone the median, at rates the mean; TTFT: median; good: share of requests within the SLO",
        "",
        text_table(_COLUMNS, (_row(point, judgement) for point in judgement.points), right=frozenset(_COLUMNS[2:])),
        "* fitted on these: not judged\n",
    ]
    for ranking in judgement.rankings:
        lines += [
            f"at {ranking.load}, best TTFT first (predicted gaps of {ranking.least_gap:.0%} or more)",
            f"  predicted: {' < '.join(ranking.predicted)}",
            f"  measured:  {' < '.join(ranking.measured)}",
        ]
    lines += ["", *_verdict(judgement)]
    return "\n".join(lines) + "\n"


def _row(point: Point, judgement: Judgement) -> tuple[str, ...]:
    return (
        point.placement + "*" * (point.placement == judgement.fitted_on),
        point.load,
        str(point.requests),
        f"{point.met:.0%}",
        *_cells(point.transfer_ms),
        *_cells(point.ttft_ms),
        f"{point.attainment.predicted:.0%}",
        f"{point.attainment.measured:.0%}",
    )


def _cells(figure: Compared) -> tuple[str, str, str]:
    return f"{figure.predicted:.1f}", f"{figure.measured:.1f}", f"{figure.off:+.1%}"


def _residual(residual: Residual | None) -> str:
    return "?" if residual is None else f"off by {residual.median:.1%} median, n = {residual.n}"


def _verdict(judgement: Judgement) -> Iterator[str]:
    for criterion in judgement.criteria:
        yield f"{'holds' if criterion.holds else 'FAILS'}: {criterion.what}: {criterion.numbers}"
    for one in judgement.left_out:
        yield f"left out: {one}"
    for one in judgement.remarks:
        yield f"note: {one}"
