"""Mistakes in a site's rates: which form they have, and figures of another unit or of both ways together."""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from hpcserve.site.reading import Path, at, items_of, pairs_of, text_at
from hpcserve.wire import Complaint

__all__ = ["check_rates", "rate_paths"]

_FORMS = "one of `effective_gb_per_s`, `nominal_gb_per_s` with `efficiency`, or `unknown: true` was wanted"

_FASTEST_PORT_GB_PER_S = 200.0
"""1.6 Tbit/s, the fastest port that any vendor has announced (2025); 400 for an NDR port is Gbit/s."""

_NVLINK_ONE_WAY_GB_PER_S = {
    "a100": 300.0,
    "a800": 200.0,
    "h800": 200.0,
    "gh200": 450.0,
    "h100": 450.0,
    "h200": 450.0,
    "b100": 900.0,
    "b200": 900.0,
    "b300": 900.0,
}
"""Half of what NVIDIA's data sheets print for all links of one GPU, which is the sum of both ways: 600 (A100), 400
(A800, H800), 900 (H100, H200), 1800 (B100, B200, B300, also as GB200 and GB300)."""


def rate_paths(raw: Mapping[str, Any]) -> Iterator[Path]:
    """Where a site's rates stand, whatever is there."""
    for name, node_type in pairs_of(raw, "node_types"):
        here = ("node_types", name)
        for index, _ in items_of(node_type, "nics"):
            yield (*here, "nics", index, "rate")
            yield (*here, "nics", index, "slot")
        for index, _ in items_of(node_type, "nvlink"):
            yield (*here, "nvlink", index, "rate")
        yield (*here, "host_path")
    for index, _ in items_of(raw, "nvlink_domains"):
        yield ("nvlink_domains", index, "rate")
    for index, _ in items_of(raw, "switches"):
        yield ("switches", index, "uplink")
        yield ("switches", index, "mesh")


def check_rates(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Every rate that has not exactly one form, is too high for what it is, or was measured on no day."""
    for path in rate_paths(raw):
        rate = at(raw, *path)
        if isinstance(rate, dict):
            yield from _check_form(path, rate)
            yield from _check_day(path, rate)
            yield from _check_size(raw, path, rate)


def _check_form(path: Path, rate: Mapping[str, Any]) -> Iterator[Complaint]:
    keys = [
        key for key in ("effective_gb_per_s", "nominal_gb_per_s", "efficiency", "unknown") if rate.get(key) is not None
    ]
    if rate.get("unknown") is False:
        keys.remove("unknown")
    if keys in (["effective_gb_per_s"], ["nominal_gb_per_s", "efficiency"], ["unknown"]):
        return
    if not keys:
        found, remedy = "a rate without a figure", "add one; `unknown: true` where nobody knows it yet"
    elif keys == ["nominal_gb_per_s"]:
        found, remedy = (
            "`nominal_gb_per_s` without `efficiency`",
            "add the share of it that transfers reach, or call what they reach `effective_gb_per_s`",
        )
    elif keys == ["efficiency"]:
        found, remedy = "`efficiency` without `nominal_gb_per_s`", "add the rate that it is a share of"
    else:
        found, remedy = f"a rate with {' and '.join(f'`{key}`' for key in keys)}", "keep one form"
    yield Complaint(path=path, found=found, wanted=_FORMS, remedy=remedy)


def _check_day(path: Path, rate: Mapping[str, Any]) -> Iterator[Complaint]:
    day = rate.get("measured_on")
    if not isinstance(day, str):
        return
    try:
        dt.date.fromisoformat(day)
    except ValueError:
        yield Complaint(
            path=(*path, "measured_on"),
            found=f"`{day[:40]}`, which is no day",
            wanted="a day was wanted, as in '2026-05-31'",
            remedy="correct it",
        )


def _check_size(raw: Mapping[str, Any], path: Path, rate: Mapping[str, Any]) -> Iterator[Complaint]:
    for key in ("nominal_gb_per_s", "effective_gb_per_s"):
        figure = rate.get(key)
        if not isinstance(figure, int | float) or isinstance(figure, bool):
            continue
        if "nics" in path and path[-1] == "rate" and figure > _FASTEST_PORT_GB_PER_S:
            yield Complaint(
                path=(*path, key),
                found=f"{figure:g} GB/s for one NIC port",
                wanted=f"at most {_FASTEST_PORT_GB_PER_S:g} was wanted: no port is faster",
                remedy=f"if that is Gbit/s, write {figure / 8:g}",
            )
        if "nvlink" in path and path[0] == "node_types":
            yield from _check_both_ways((*path, key), figure, text_at(raw, *path[:2], "gpu", "model") or "")


def _check_both_ways(path: Path, figure: float, model: str) -> Iterator[Complaint]:
    known = next((name for name in _NVLINK_ONE_WAY_GB_PER_S if name in model.lower()), None)
    if known is not None and figure > _NVLINK_ONE_WAY_GB_PER_S[known]:
        most = _NVLINK_ONE_WAY_GB_PER_S[known]
        yield Complaint(
            path=path,
            found=f"{figure:g} GB/s of NVLink for `{model}`",
            wanted=f"at most {most:g} was wanted, one way",
            remedy=f"data sheets print the sum of both ways, {2 * most:g}: write half",
        )
