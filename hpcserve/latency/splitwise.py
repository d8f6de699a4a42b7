"""The profile that Splitwise published as a table, read from a user's copy of it.

The table is data/perf_model.csv of github.com/Mutinifni/splitwise-sim (MIT), described in Patel et al., Splitwise,
ISCA 2024: one row a repetition, times in milliseconds. It is not part of hpcserve. As in the published simulator the
time of a prompt step is straight between medians over the batch's total tokens.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median

from hpcserve.errors import InputError, Mistake, NotFoundError
from hpcserve.latency.curve import rising
from hpcserve.latency.digits import points_of, rounded
from hpcserve.latency.least_squares import Observation, determined, solve
from hpcserve.latency.record import model_of
from hpcserve.latency.residual import with_residuals
from hpcserve.latency.step import Chunk
from hpcserve.nouns import DecodeCurve, LatencyFile, PrefillCurve

__all__ = ["splitwise_latency"]

_TEXTS = ("model", "hardware")
_COUNTS = ("prompt_size", "batch_size", "token_size", "tensor_parallel")
_TIMES = ("prompt_time", "token_time")
_COUNT = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    model: str
    hardware: str
    tensor_parallel: int
    prompt_tokens: int
    sequences: int
    output_tokens: int
    prompt_ms: float
    token_ms: float

    @property
    def context_tokens(self) -> float:
        """Of one sequence, half-way through its output."""
        return self.prompt_tokens + self.output_tokens / 2


def splitwise_latency(text: str, *, source: str, model: str, hardware: str, tensor_parallel: int) -> LatencyFile:
    """The profile of one model, hardware and TP in the table `text`.

    Raises InputError with every mistake of the table, NotFoundError for a combination that is not in it.
    """
    rows = _read(text, source=source)
    chosen = [
        row for row in rows if (row.model, row.hardware, row.tensor_parallel) == (model, hardware, tensor_parallel)
    ]
    single = [row for row in chosen if row.sequences == 1]
    tokens = {row.prompt_tokens * row.sequences for row in chosen}
    if len(tokens) < 2 or not single or len({row.sequences for row in chosen}) < 2:  # noqa: PLR2004 - curves have two ends
        there = sorted({f"{row.model} on {row.hardware}, TP {row.tensor_parallel}" for row in rows})
        raise NotFoundError(
            f"{source} has no profile of {model} on {hardware} at TP {tensor_parallel}",
            remedy=f"it has {'; '.join(there)}" if there else "name a table with rows",
        )
    per_context = _context_slope(single)
    prompt = rising((size, _median_at(chosen, size)) for size in sorted(tokens))
    decode = rising(
        (
            size,
            median(row.token_ms - per_context * size * row.context_tokens for row in chosen if row.sequences == size),
        )
        for size in sorted({row.sequences for row in chosen})
    )
    table = " ".join(source.split())
    made = LatencyFile(
        schema_="hpcserve.latency/1",
        model=model,
        gpu=hardware,
        engine="vLLM as Splitwise profiled it",
        kind="predicted",
        source=f"Splitwise (Patel et al., ISCA 2024), {model} on {hardware}, TP {tensor_parallel}: {table}",
        kv_tokens=None,
        prefill=PrefillCurve(tensor_parallel=tensor_parallel, points=points_of(prompt), ms_per_token2=0.0),
        decode=DecodeCurve(
            tensor_parallel=tensor_parallel, points=points_of(decode), ms_per_context_token=per_context
        ),
        notes=(
            f"prefill: medians from {min(tokens)} to {max(tokens)} tokens in a step; cached tokens cost nothing",
            "times that fell where more work was done were put at their mean",
        ),
    )  # fmt: skip
    return _with_residuals(made, chosen)


def _with_residuals(made: LatencyFile, rows: Sequence[_Row]) -> LatencyFile:
    model = model_of(made)
    prompt = [model.prefill_ms([Chunk(row.prompt_tokens, 0)] * row.sequences) / row.prompt_ms - 1 for row in rows]
    token = [
        model.decode_ms(row.sequences, round(row.sequences * row.context_tokens)) / row.token_ms - 1 for row in rows
    ]
    return with_residuals(made, prefill=prompt, decode=token)


def _median_at(rows: Sequence[_Row], tokens: int) -> float:
    """Of single prompts where there are any; a batch of shorter ones has less attention to compute."""
    alike = [row for row in rows if row.prompt_tokens * row.sequences == tokens]
    single = [row for row in alike if row.sequences == 1]
    return median(row.prompt_ms for row in single or alike)


def _context_slope(rows: Sequence[_Row]) -> float:
    """Milliseconds per token of context, of single sequences; 0 where the table does not tell."""
    seen = [Observation(row=(1.0, row.context_tokens), ms=row.token_ms) for row in rows]
    columns = determined(seen, (0, 1))
    return rounded(solve(seen, columns).coefficients[1]) if 1 in columns else 0.0


def _read(text: str, *, source: str) -> list[_Row]:
    reader = csv.DictReader(io.StringIO(text))
    try:
        names = reader.fieldnames or ()
    except csv.Error as error:
        raise InputError([_mistake(source, 1, str(error), "comma-separated values were wanted")]) from None
    missing = [name for name in (*_TEXTS, *_COUNTS, *_TIMES) if name not in names]
    if missing:
        found = f"no column {', '.join(missing)}"
        raise InputError([_mistake(source, 1, found, "the columns of Splitwise's perf_model.csv were wanted")])
    rows, mistakes = [], []
    try:
        for raw in reader:
            wrong = list(_wrong(raw, source=source, line=reader.line_num))
            mistakes += wrong
            if not wrong:
                rows.append(_row(raw))
    except csv.Error as error:
        mistakes.append(_mistake(source, reader.line_num, str(error), "comma-separated values were wanted"))
    if mistakes:
        raise InputError(mistakes)
    return rows


def _mistake(source: str, line: int, found: str, wanted: str) -> Mistake:
    return Mistake(
        file=source, line=line, column=1, found=found, wanted=wanted, remedy="take the file as it was published"
    )


def _wrong(raw: Mapping[str, str | None], *, source: str, line: int) -> Iterator[Mistake]:
    wanted = {**dict.fromkeys(_COUNTS, "a whole number above 0"), **dict.fromkeys(_TIMES, "milliseconds above 0")}
    for name, form in wanted.items():
        found = raw.get(name)
        if not (_is_count(found) if name in _COUNTS else _is_time(found)):
            yield _mistake(source, line, f"`{name}` is {found!r}", f"{form} was wanted")


def _is_count(text: str | None) -> bool:
    return text is not None and _COUNT.fullmatch(text) is not None


def _is_time(text: str | None) -> bool:
    try:
        value = float(text or "")
    except ValueError:
        return False
    return isfinite(value) and value > 0


def _row(raw: Mapping[str, str]) -> _Row:
    return _Row(
        model=raw["model"],
        hardware=raw["hardware"],
        tensor_parallel=int(raw["tensor_parallel"]),
        prompt_tokens=int(raw["prompt_size"]),
        sequences=int(raw["batch_size"]),
        output_tokens=int(raw["token_size"]),
        prompt_ms=float(raw["prompt_time"]),
        token_ms=float(raw["token_time"]),
    )
