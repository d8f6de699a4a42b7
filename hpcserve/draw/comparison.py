"""What a plan considered and what its verdict rests on, as tables."""

from hpcserve.draw.terminal import text_table
from hpcserve.nouns import Alternative, Comparison, Percentiles, Verdict
from hpcserve.units import ms_text

__all__ = ["comparison_table", "evidence_table"]

_COLUMNS = (
    "",
    "shape",
    "GPUs",
    "goodput req/s",
    "per GPU",
    "TTFT ms p50 / p90",
    "TPOT ms p50 / p90",
    "transfer ms",
    "links used",
)
_RIGHT = frozenset(_COLUMNS[2:8])
_UNKNOWN = "-"
_LEGEND = (
    "* chosen, = as the service says; transfer: predicted for one request alone on the slowest path, in brackets "
    "simulated, 90th percentile"
)


def comparison_table(comparison: Comparison) -> str:
    """The alternatives, best first, one a line: `*` was chosen, `=` is as the service says; and what was left out.

    TTFT and TPOT are at the goodput; the transfer is one request's on the slowest path, and in brackets its 90th
    percentile under that load.
    """
    slo, load = comparison.slo, comparison.workload
    said = (
        f"Simulated: {load.input_tokens} tokens in ({load.cached_prefix_tokens} cached), {load.output_tokens} out; "
        f"TTFT {slo.ttft_ms:g} ms and TPOT {slo.tpot_ms:g} ms for {slo.attainment:.0%} of requests"
    )
    rows = [_row(one, loaded=load.requests_per_s is not None) for one in comparison.alternatives]
    columns: tuple[str, ...] = _COLUMNS
    if load.requests_per_s is not None:
        columns = (*_COLUMNS, f"meets it at {load.requests_per_s:g} req/s")
    table = text_table(columns, rows, right=_RIGHT)
    notes = _remarks(comparison)
    notes += [f"left out: {words}" for words in comparison.left_out]
    notes += [f"Times: {source}" for source in comparison.sources]
    return "\n".join([said, table.rstrip("\n"), _LEGEND, *notes]) + "\n"


def _remarks(comparison: Comparison) -> list[str]:
    """Each remark once, with the shapes that it is about."""
    shapes: dict[str, list[str]] = {}
    for one in comparison.alternatives:
        for remark in one.remarks:
            shapes.setdefault(remark, []).append(one.name)
    everywhere = len(comparison.alternatives)
    return [
        f"{'all shapes' if len(names) == everywhere else '; '.join(names)}: {remark}"
        for remark, names in shapes.items()
    ]


def _row(one: Alternative, *, loaded: bool) -> tuple[str, ...]:
    marks = ("*" if one.chosen else "") + ("=" if one.as_written else "")
    cells = (
        marks,
        one.name,
        str(one.gpus),
        _goodput(one),
        _UNKNOWN if one.goodput_per_gpu is None else f"{one.goodput_per_gpu:.3g}",
        _spread(one.ttft_ms),
        _spread(one.tpot_ms),
        _transfer(one),
        ", ".join(one.links) or _UNKNOWN,
    )
    if not loaded:
        return cells
    return (*cells, _UNKNOWN if one.attainment_at_load is None else f"{one.attainment_at_load:.1%}")


def _goodput(one: Alternative) -> str:
    if one.goodput is None or one.goodput.request_rate is None:
        return _UNKNOWN
    sign = {"below": "< ", "above": "> "}.get(one.goodput.bound, "")
    return f"{sign}{one.goodput.request_rate:.3g}"


def _spread(found: Percentiles | None) -> str:
    if found is None or found.p50 is None or found.p90 is None:
        return _UNKNOWN
    return f"{ms_text(found.p50)} / {ms_text(found.p90)}"


def _transfer(one: Alternative) -> str:
    if one.slowest_transfer_ms is None:
        return _UNKNOWN
    loaded = one.transfer_ms.p90 if one.transfer_ms is not None else None
    return ms_text(one.slowest_transfer_ms) + (f" ({ms_text(loaded)})" if loaded is not None else "")


def evidence_table(verdict: Verdict) -> str:
    """Every number that the verdict rests on, with unit, kind and source."""
    rows = [(one.what, f"{one.value:,.6g}", one.unit, one.kind, one.source) for one in verdict.evidence]
    if not rows:
        return "The verdict rests on no numbers.\n"
    return text_table(("number", "value", "unit", "kind", "source"), rows, right=frozenset({"value"}))
