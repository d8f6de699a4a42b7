"""Latency files: read with all mistakes at once, and made into models."""

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from hpcserve.latency.curve import Curve
from hpcserve.latency.curved import CurvedLatency
from hpcserve.latency.linear import LinearLatency
from hpcserve.latency.step import LatencyModel
from hpcserve.nouns import DecodeCurve, DecodeLine, LatencyFile, PrefillCurve, PrefillLine
from hpcserve.wire import Complaint, UnreadableRecordError, decode_record, decode_yaml

__all__ = ["model_of", "read_latency"]


def read_latency(text: str, *, source: str) -> LatencyFile:
    """The latency file that `text` is; raises InputError with every mistake and its place in `source`.

    It is JSON as hpcserve writes it, and may be YAML where a person wrote it.
    """
    try:
        found = decode_record(LatencyFile, text.encode())
    except UnreadableRecordError:
        found = None
    if found is not None and not any(_check(json.loads(text))):
        return found
    return decode_yaml(LatencyFile, text, source=source, check=_check)


def model_of(file: LatencyFile) -> LatencyModel:
    """The model that a file describes; raises ValueError for figures that no worker can have.

    What `read_latency` gives is free of them.
    """
    prefill, decode = file.prefill, file.decode
    if isinstance(prefill, PrefillLine) and isinstance(decode, DecodeLine):
        return LinearLatency(
            prefill_base_ms=prefill.base_ms,
            prefill_ms_per_token=prefill.ms_per_token,
            prefill_ms_per_token2=prefill.ms_per_token2,
            decode_base_ms=decode.base_ms,
            decode_ms_per_sequence=decode.ms_per_sequence,
            decode_ms_per_context_token=decode.ms_per_context_token,
            kv_tokens=file.kv_tokens,
            source=file.source,
            kind=file.kind,
        )
    return CurvedLatency(
        prefill=_prefill_curve(prefill),
        prefill_ms_per_token2=prefill.ms_per_token2,
        decode=_decode_curve(decode),
        decode_ms_per_context_token=decode.ms_per_context_token,
        kv_tokens=file.kv_tokens,
        source=file.source,
        kind=file.kind,
    )


def _prefill_curve(prefill: PrefillLine | PrefillCurve) -> Curve:
    if isinstance(prefill, PrefillCurve):
        return Curve(tuple((point.at, point.ms) for point in prefill.points))
    return _straight(prefill.base_ms, prefill.ms_per_token)


def _decode_curve(decode: DecodeLine | DecodeCurve) -> Curve:
    if isinstance(decode, DecodeCurve):
        return Curve(tuple((point.at, point.ms) for point in decode.points))
    return _straight(decode.base_ms, decode.ms_per_sequence)


def _straight(base_ms: float, slope_ms: float) -> Curve:
    return Curve(((1, base_ms + slope_ms), (1024, base_ms + 1024 * slope_ms)))


_WORK = {"prefill": ("base_ms", "ms_per_token"), "decode": ("base_ms", "ms_per_sequence")}
"""What must not be all 0, so that work takes time."""


def _check(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """What each figure may be by itself, and they may not be together."""
    for phase, names in _WORK.items():
        part = raw.get(phase)
        if not isinstance(part, Mapping):
            continue
        if part.get("form") == "line" and all(part.get(name) == 0 for name in names):
            yield Complaint(
                path=(phase,),
                at_key=True,
                found=f"`{phase}` takes no time: {' and '.join(names)} are 0",
                wanted="work that takes time was wanted",
                remedy=f"correct one of `{phase}`'s figures",
            )
        points = part.get("points")
        if part.get("form") == "curve" and isinstance(points, list):
            yield from _check_points(phase, points)


def _check_points(phase: str, points: list[Any]) -> Iterator[Complaint]:
    for index, (one, other) in enumerate(pairwise(points), start=1):
        for name, least in (("at", "more than"), ("ms", "at least")):
            low, high = _number(one, name), _number(other, name)
            if low is None or high is None:
                continue
            if high < low or (high == low and name == "at"):
                yield Complaint(
                    path=(phase, "points", index, name),
                    found=f"`{phase}.points[{index}].{name}` is {high} after {low}",
                    wanted=f"{least} the point before was wanted",
                    remedy="put the points in order; more work takes no less time",
                )


def _number(point: object, name: str) -> float | None:
    value = point.get(name) if isinstance(point, Mapping) else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
