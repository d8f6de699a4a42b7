"""A report as terminal text and as CSV."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from hpcserve.draw import text_table
from hpcserve.nouns import Percentiles, PlacementResult, Report
from hpcserve.report.attainment import share_text
from hpcserve.units import ms_text

__all__ = [
    "GOODPUT_COLUMNS",
    "NO_RUN",
    "RATE_COLUMNS",
    "RIGHT_COLUMNS",
    "TRANSFER_COLUMNS",
    "csv",
    "goodput_rows",
    "rate_rows",
    "text",
    "transfer_rows",
]

GOODPUT_COLUMNS = ("placement", "mode", "GPUs", "goodput (requests/s)", "per GPU")
RATE_COLUMNS = (
    "placement",
    "offered/s",
    "good/s",
    "spread",
    "good",
    "attainment",
    "95 %",
    "TTFT ms p50/p90/p99",
    "TPOT ms p50/p90/p99",
    "runs",
)
TRANSFER_COLUMNS = ("placement", "load", "predicted ms", "measured ms", "min-max", "measured ÷ predicted", "n")
RIGHT_COLUMNS = frozenset(
    {"GPUs", "per GPU", "offered/s", "good/s", "good", "attainment", "runs", "n", "predicted ms", "measured ms"}
)


NO_RUN = "no valid run"
"""What stands in place of a table without rows."""


def text(report: Report) -> str:
    """The report for a terminal."""
    sections = [
        ("Goodput", GOODPUT_COLUMNS, list(goodput_rows(report))),
        ("Each offered rate", RATE_COLUMNS, list(rate_rows(report))),
        ("KV transfer", TRANSFER_COLUMNS, list(transfer_rows(report))),
    ]
    lines = [f"{report.sweep} on {report.site.name}", question(report), ""]
    for title, columns, rows in sections:
        lines += [title, text_table(columns, rows, right=RIGHT_COLUMNS) if rows else f"  {NO_RUN}\n"]
    if report.invalid:
        lines.append("Invalid, not counted")
        lines += [f"  {run.id}: {reason}" for run in report.invalid for reason in run.reasons]
        lines.append("")
    lines += ["Recommendation", *(f"  {sentence}" for sentence in report.recommendation)]
    return "\n".join(lines) + "\n"


def question(report: Report) -> str:
    """What was asked, in one line: lengths and SLO."""
    return (
        f"{report.input_tokens} input tokens ({report.cached_prefix_tokens} of them a shared prefix at rates), "
        f"{report.output_tokens} output tokens; good: TTFT ≤ {report.slo.ttft_ms:g} ms and "
        f"TPOT ≤ {report.slo.tpot_ms:g} ms; target {share_text(report.slo.attainment)}"
    )


def goodput_rows(report: Report) -> Iterator[tuple[str, ...]]:
    """Cells of `GOODPUT_COLUMNS`."""
    for placement in report.placements:
        rate = placement.goodput.request_rate
        per_gpu = (
            "-" if rate is None else str(placement.goodput.model_copy(update={"request_rate": rate / placement.gpus}))
        )
        yield placement.name, placement.mode, str(placement.gpus), str(placement.goodput), per_gpu


def rate_rows(report: Report) -> Iterator[tuple[str, ...]]:
    """Cells of `RATE_COLUMNS`."""
    for placement in report.placements:
        for result in placement.rates:
            yield (
                placement.name,
                f"{result.request_rate:g}",
                f"{result.good_per_s:.2f}",
                f"{result.good_per_s_min:.2f}-{result.good_per_s_max:.2f}",
                f"{result.good}/{result.requests}",
                share_text(result.attainment),
                f"{result.attainment_low:.0%}-{result.attainment_high:.0%}",
                _three(result.ttft_ms),
                _three(result.tpot_ms),
                str(result.repetitions),
            )


def transfer_rows(report: Report) -> Iterator[tuple[str, ...]]:
    """Cells of `TRANSFER_COLUMNS`."""
    for placement in report.placements:
        for result in placement.transfers:
            yield (
                placement.name,
                "alone" if result.load == "alone" else f"{result.load:g}/s (mean)",
                "-" if result.predicted_ms is None else ms_text(result.predicted_ms),
                ms_text(result.typical_ms),
                f"{ms_text(result.min_ms)}-{ms_text(result.max_ms)}",
                "-" if result.ratio is None else f"{result.ratio:.2f}",
                str(result.transfers),
            )


def csv(report: Report) -> str:
    """One row per placement and load, and one per invalid run, which has a reason in place of figures."""
    rows = [row for placement in report.placements for row in _csv_rows(placement)]
    rows += [
        {"placement": run.placement, "run": run.id, "valid": False, "reason": "; ".join(run.reasons)}
        for run in report.invalid
    ]
    frame = pd.json_normalize(rows, sep="_").reindex(columns=list(_CSV_COLUMNS))
    return str(frame.convert_dtypes().to_csv(index=False, lineterminator="\n", float_format="%.6g"))


_CSV_COLUMNS = (
    "placement", "run", "valid", "reason", "simulated", "mode", "gpus", "goodput_bound", "goodput_request_rate", "load",
    "rate_request_rate", "rate_repetitions", "rate_requests", "rate_good", "rate_attainment", "rate_attainment_low",
    "rate_attainment_high", "rate_good_per_s", "rate_good_per_s_min", "rate_good_per_s_max",
    "rate_ttft_ms_p50", "rate_ttft_ms_p90", "rate_ttft_ms_p99", "rate_tpot_ms_p50", "rate_tpot_ms_p90",
    "rate_tpot_ms_p99", "transfer_transfers", "transfer_predicted_ms", "transfer_typical_ms", "transfer_min_ms",
    "transfer_max_ms", "transfer_ratio",
)  # fmt: skip
"""Paths into placement, rate and transfer, joined by `_`."""


def _csv_rows(placement: PlacementResult) -> Iterator[dict[str, Any]]:
    shared = placement.model_dump(include={"simulated", "mode", "gpus", "goodput"})
    shared = {"placement": placement.name, "valid": True, **shared}
    moved = {result.load: result.model_dump() for result in placement.transfers}
    if "alone" in moved:
        yield {**shared, "load": "alone", "transfer": moved["alone"]}
    for result in placement.rates:
        yield {**shared, "load": "rate", "rate": result.model_dump(), "transfer": moved.get(result.request_rate, {})}


def _three(times: Percentiles) -> str:
    return " / ".join("-" if value is None else f"{value:.0f}" for value in (times.p50, times.p90, times.p99))
