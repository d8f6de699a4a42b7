"""Runs -> a latency file: relative least squares, with the error it leaves, or what is missing for it."""

from collections.abc import Iterable, Sequence
from statistics import median

from hpcserve.errors import HpcserveError
from hpcserve.latency.digits import rounded
from hpcserve.latency.least_squares import Observation, determined, residuals, solve
from hpcserve.latency.observe import Observed, Seen, observe
from hpcserve.latency.residual import residual_of
from hpcserve.nouns import DecodeLine, LatencyFile, PrefillLine, Residual, Run

__all__ = ["fit"]

_BASE, _SLOPE, _CURVATURE = 0, 1, 2


def fit(runs: Iterable[Run], *, kv_tokens: int | None = None, router_ms: float = 0.0) -> LatencyFile:
    """A `LinearLatency` on file, fitted to the valid ones of the runs by relative least squares.

    `kv_tokens` is what runs do not say, the worker's KV capacity; `router_ms` what router and HTTP take of each TTFT.
    Raises HpcserveError where the runs are not of one kind of worker, or cannot tell the coefficients apart: which runs
    would is in its remedy.
    """
    observed = observe(runs, router_ms=router_ms)
    prefill, prefill_notes = _fit_prefill(observed)
    decode, decode_notes = _fit_decode(observed)
    kind = observed.kind
    return LatencyFile(
        schema_="hpcserve.latency/1",
        model=kind.model,
        gpu=kind.gpu,
        engine=kind.engine,
        kind="predicted" if kind.simulated else "measured",
        source=_source(observed),
        kv_tokens=kv_tokens,
        prefill=prefill,
        decode=decode,
        notes=(*observed.notes, *prefill_notes, *decode_notes),
    )


def _source(observed: Observed) -> str:
    names = observed.runs
    few = 4
    listed = ", ".join(names[:few]) + (f" and {len(names) - few} more" if len(names) > few else "")
    return f"fitted to {len(names)} runs of hpcserve: {listed}"


def _fit_prefill(observed: Observed) -> tuple[PrefillLine, list[str]]:
    seen = observed.prefill
    if not seen:
        raise HpcserveError(
            "no request of these runs was alone until its first token: their TTFT is not a prefill's time",
            remedy="add a run of kind `alone`, or one at a low rate, of requests with 2 output tokens or more",
        )
    grouped = _grouped(seen)
    columns = determined(grouped, (_SLOPE, _BASE, _CURVATURE))
    lengths = sorted({round(one.row[_SLOPE]) for one in grouped})
    if _SLOPE not in columns or _BASE not in columns:
        raise HpcserveError(
            f"prefill: {_listed(lengths, 'computed tokens')} do not tell its base from its time per token",
            remedy="add valid runs of other prompts: another input_tokens (at least twice as long) or a cached prefix",
        )
    coefficients, residual = _solved(grouped, seen, sorted(columns))
    line = PrefillLine(
        tensor_parallel=observed.kind.prefill_tensor_parallel,
        pipeline_parallel=observed.kind.prefill_stages,
        base_ms=coefficients[_BASE],
        ms_per_token=coefficients[_SLOPE],
        ms_per_token2=coefficients[_CURVATURE],
        residual=residual,
    )
    notes = [f"prefill: seen from {lengths[0]} to {lengths[-1]} computed tokens"]
    notes += _held_at_0("prefill", ("base", "time per token", "attention"), columns, coefficients)
    if _CURVATURE not in columns:
        notes.append(
            "prefill: attention's share is not determined and taken as 0: longer prompts will take longer than this "
            "says; runs with a third input_tokens would tell"
        )
    _check_work(line.base_ms + line.ms_per_token + line.ms_per_token2, "prefill")
    return line, notes


def _fit_decode(observed: Observed) -> tuple[DecodeLine, list[str]]:
    seen = observed.decode
    if not seen:
        raise HpcserveError(
            "no request of these runs has a TPOT that tells of decode",
            remedy="add runs with output_tokens of 2 or more",
        )
    grouped = _grouped(seen)
    columns = determined(grouped, (_BASE, _SLOPE, _CURVATURE))
    largest = max(one.row[_SLOPE] for one in grouped)
    if _SLOPE not in columns:
        raise HpcserveError(
            f"decode: at most {largest:.2g} sequences were decoded together: a step's base and its time per sequence "
            "cannot be told apart",
            remedy="add valid runs of kind `rate` with one decode worker, at rates at which requests overlap",
        )
    coefficients, residual = _solved(grouped, seen, sorted(columns))
    line = DecodeLine(
        tensor_parallel=observed.kind.decode_tensor_parallel,
        pipeline_parallel=observed.kind.decode_stages,
        base_ms=coefficients[_BASE],
        ms_per_sequence=coefficients[_SLOPE],
        ms_per_context_token=coefficients[_CURVATURE],
        residual=residual,
    )
    notes = [f"decode: seen up to {largest:.3g} sequences together"]
    notes += _held_at_0("decode", ("base", "time per sequence", "time per token of context"), columns, coefficients)
    if _CURVATURE not in columns:
        each = median(one.row[_CURVATURE] / one.row[_SLOPE] for one in grouped)
        notes.append(
            f"decode: the share of the context is not determined; it is in the time per sequence, right for contexts "
            f"near {each:.0f} tokens; runs with another input_tokens would tell"
        )
    _check_work(line.base_ms + line.ms_per_sequence, "decode")
    return line, notes


def _held_at_0(phase: str, names: Sequence[str], columns: Sequence[int], coefficients: Sequence[float]) -> list[str]:
    """Coefficients that the runs determine, and that would be below 0 if they could."""
    held = [names[column] for column in sorted(columns) if coefficients[column] == 0]
    return [f"{phase}: the fit would put {' and '.join(held)} below 0, and holds it at 0"] if held else []


def _check_work(least_ms: float, phase: str) -> None:
    if least_ms <= 0:
        raise HpcserveError(
            f"{phase}: the fit says that short steps take no time at all",
            remedy="add runs: these contradict one another",
        )


def _grouped(seen: Sequence[Seen]) -> list[Observation]:
    """One observation for what is alike in a run: medians, so that a few odd requests do not bend the fit."""
    groups: dict[tuple[str, int, int], list[Seen]] = {}
    for one in seen:
        groups.setdefault((one.run, round(one.row[_BASE]), round(one.row[_SLOPE])), []).append(one)
    return [
        Observation(
            row=tuple(median(one.row[column] for one in group) for column in range(len(group[0].row))),
            ms=median(one.ms for one in group),
            weight=float(len(group)),
        )
        for group in groups.values()
    ]


def _solved(
    grouped: Sequence[Observation], seen: Sequence[Seen], columns: Sequence[int]
) -> tuple[tuple[float, ...], Residual]:
    """Coefficients as they are written down, and the error that these leave on every single request."""
    exact = solve(grouped, columns).coefficients
    coefficients = tuple(map(rounded, exact))
    errors = residuals([Observation(row=one.row, ms=one.ms) for one in seen], coefficients)
    return coefficients, residual_of(errors)


def _listed(values: Sequence[int], what: str) -> str:
    few = 5
    if len(values) > few:
        return f"prompts of {values[0]} to {values[-1]} {what}"
    return f"prompts of {', '.join(map(str, values))} {what}"
