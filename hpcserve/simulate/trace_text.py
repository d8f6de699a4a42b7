"""Published trace formats -> `Trace`; every mistake is told, with its line.

Azure: `TIMESTAMP,ContextTokens,GeneratedTokens`, the LLM inference traces of the Azure Public Dataset (Patel et al.,
Splitwise, ISCA 2024). Mooncake: one JSON object a line, `timestamp` in ms, `input_length`, `output_length`,
`hash_ids` of 512-token blocks (Qin et al., Mooncake, FAST 2025).
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from hpcserve.errors import InputError, Mistake
from hpcserve.simulate.traffic import Arrival, Lengths, Trace

__all__ = ["azure_trace", "mooncake_trace"]

_AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_AZURE_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d{1,9})?(?:Z|\+00:00)?", re.ASCII)
_AZURE_FIELDS = 3
_MOST_TOKENS = 100_000_000
_MOST_MS = 1e12
"""Some thirty years."""
_BLOCK_TOKENS = 512
"""Tokens of one of Mooncake's `hash_ids`."""


class _Reader:
    """What was understood, and what was not."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.seen: list[tuple[float, Lengths]] = []
        self.mistakes: list[Mistake] = []

    def wrong(self, line: int, found: str, wanted: str, remedy: str = "correct the line, or leave it out") -> None:
        self.mistakes.append(Mistake(file=self.source, line=line, column=1, found=found, wanted=wanted, remedy=remedy))

    def trace(self) -> Trace:
        if not self.seen and not self.mistakes:
            self.wrong(1, "no requests", "at least one was wanted", "give a file that has some")
        if self.mistakes:
            raise InputError(self.mistakes)
        ordered = sorted(self.seen, key=lambda one: one[0])
        first_ms = ordered[0][0]
        return Trace(seen=tuple(Arrival(at_ms - first_ms, lengths) for at_ms, lengths in ordered))


def azure_trace(text: str, *, source: str) -> Trace:
    """The requests of a trace in Azure's format, from the first one's time on; lines may be out of order.

    Raises InputError with every line that is none. A request without output makes no token and is a mistake too.
    """
    reader = _Reader(source)
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or tuple(name.strip() for name in lines[0].split(",")) != _AZURE_COLUMNS:
        reader.wrong(
            1, f"`{lines[0][:80] if lines else ''}`", f"the header `{','.join(_AZURE_COLUMNS)}` was wanted",
            "give a trace in Azure's format, or say which format it has",
        )  # fmt: skip
        return reader.trace()
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != _AZURE_FIELDS:
            reader.wrong(number, f"{len(fields)} fields", f"{_AZURE_FIELDS} were wanted")
            continue
        at_ms = _azure_ms(fields[0])
        tokens = [_count(field) for field in fields[1:]]
        if at_ms is None:
            reader.wrong(number, f"the time `{fields[0][:40]}`", "a time as 2023-11-16 18:17:03.9799600 was wanted")
        for name, field, count in zip(_AZURE_COLUMNS[1:], fields[1:], tokens, strict=True):
            if count is None:
                reader.wrong(number, f"{name} `{field[:40]}`", f"a number from 1 to {_MOST_TOKENS} was wanted")
        if at_ms is not None and tokens[0] is not None and tokens[1] is not None:
            reader.seen.append((at_ms, Lengths(tokens[0], tokens[1])))
    return reader.trace()


def mooncake_trace(text: str, *, source: str, reuse: bool = False) -> Trace:
    """The requests of a trace in Mooncake's format, from the first one's time on.

    `reuse`: leading blocks whose `hash_ids` an earlier request had count as cached, as a prefix cache without end would
    have them; at least one token is always computed. Raises InputError with every line that is none.
    """
    reader = _Reader(source)
    known: set[int] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            _mooncake_line(reader, number, line, known if reuse else None)
    return reader.trace()


def _mooncake_line(reader: _Reader, number: int, line: str, known: set[int] | None) -> None:
    try:
        entry = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError):
        reader.wrong(number, f"`{line[:40]}`", "one JSON object a line was wanted")
        return
    if not isinstance(entry, dict):
        reader.wrong(number, f"`{line[:40]}`", "one JSON object a line was wanted")
        return
    before = len(reader.mistakes)
    at_ms = entry.get("timestamp")
    if isinstance(at_ms, bool) or not isinstance(at_ms, int | float) or not 0 <= at_ms <= _MOST_MS:
        reader.wrong(number, _shown(entry, "timestamp"), "milliseconds, 0 or more, were wanted")
    for key in ("input_length", "output_length"):
        count = entry.get(key)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= _MOST_TOKENS:
            reader.wrong(number, _shown(entry, key), f"a number from 1 to {_MOST_TOKENS} was wanted")
    ids = entry.get("hash_ids", [])
    if not isinstance(ids, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in ids):
        reader.wrong(number, _shown(entry, "hash_ids"), "a list of whole numbers was wanted")
    if len(reader.mistakes) > before:
        return
    cached = 0 if known is None else _known_blocks(ids, known) * _BLOCK_TOKENS
    reader.seen.append(
        (float(entry["timestamp"]), Lengths(entry["input_length"], entry["output_length"],
                                            min(cached, entry["input_length"] - 1)))
    )  # fmt: skip


def _known_blocks(ids: list[int], known: set[int]) -> int:
    """How many of the leading blocks were there before; all of them are afterwards."""
    leading = next((place for place, one in enumerate(ids) if one not in known), len(ids))
    known.update(ids)
    return leading


def _shown(entry: Mapping[str, Any], key: str) -> str:
    return f"{key} `{str(entry[key])[:40]}`" if key in entry else f"no {key}"


def _azure_ms(text: str) -> float | None:
    match = _AZURE_TIME.fullmatch(text)
    if match is None:
        return None
    try:
        whole = datetime.fromisoformat(match[1]).replace(tzinfo=UTC)
    except ValueError:
        return None
    return whole.timestamp() * 1e3 + float(match[2] or 0) * 1e3


def _count(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(_MOST_TOKENS)):
        return None
    number = int(text)
    return number if 1 <= number <= _MOST_TOKENS else None
