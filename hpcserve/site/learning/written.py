"""Learnt values as they stand in a site file, and whether two ways of writing one are the same."""

import math
from collections.abc import Mapping
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from hpcserve.site.hostlist import HostListError, expand_hosts
from hpcserve.site.learning.leaves import Branch, Gap, Items, Known, LearntRate, Node

__all__ = ["NOT_LEARNT", "plain", "rate_of", "same_rate", "same_value", "write", "write_list"]

NOT_LEARNT = "not learnt: "
"""How the comment beside a gap begins."""


def write(node: Node, *, efficiency: float | None) -> Any:
    """A drafted part as round-trip YAML; gaps are empty values with a comment that says what belongs there."""
    if isinstance(node, Known):
        return write_list(node.value)
    if isinstance(node, Gap):
        return None
    if isinstance(node, LearntRate):
        return CommentedMap(rate_of(node, efficiency=efficiency))
    if isinstance(node, Items):
        written = {name: write(branch, efficiency=efficiency) for name, branch in node.items.items()}
        return CommentedMap(written) if node.mapping else CommentedSeq(written.values())
    return _branch(node, efficiency=efficiency)


def _branch(branch: Branch, *, efficiency: float | None) -> CommentedMap:
    written = CommentedMap()
    for key, node in branch.items():
        written[key] = write(node, efficiency=efficiency)
        if isinstance(node, Gap):
            written.yaml_add_eol_comment(NOT_LEARNT + node.needed, key)
    return written


def write_list(value: Any) -> Any:
    """A list of values in one line; any other value as it is."""
    if not isinstance(value, list | tuple):
        return value
    sequence = CommentedSeq(value)
    sequence.fa.set_flow_style()
    return sequence


def rate_of(rate: LearntRate, *, efficiency: float | None) -> dict[str, Any]:
    """A `Rate`: nominal with the share that the admin named for all of them, else unknown with the reason."""
    if rate.nominal_gb_per_s is None:
        return {"unknown": True, "source": rate.source}
    if efficiency is None:
        built = f"built for {rate.nominal_gb_per_s:g} GB/s one way, {rate.source}; what it carries is not measured"
        return {"unknown": True, "source": built}
    return {
        "nominal_gb_per_s": rate.nominal_gb_per_s,
        "efficiency": efficiency,
        "source": f"nominal: {rate.source}; efficiency: given by the admin at import",
    }


def same_rate(current: Any, rate: LearntRate, *, efficiency: float | None) -> bool:
    """Whether a rate of the file agrees with what was learnt, as far as the two can be compared."""
    if not isinstance(current, Mapping):
        return False
    if current.get("unknown") is True:
        return rate_of(rate, efficiency=efficiency).get("unknown") is True
    nominal = current.get("nominal_gb_per_s")
    if rate.nominal_gb_per_s is None or not isinstance(nominal, int | float):
        return True
    # Link rates are told with two or three digits: 53.125 and 53.1 Gbit/s per lane are one rate.
    return math.isclose(nominal, rate.nominal_gb_per_s, rel_tol=0.005)


def same_value(current: Any, known: Known) -> bool:
    """Whether a value of the file says what was learnt, however it is written."""
    current, learnt = plain(current), plain(known.value)
    if current == learnt:
        return True
    if known.form == "hosts" and isinstance(current, str):
        try:
            return set(expand_hosts(current)) == set(expand_hosts(learnt))
        except HostListError:
            return False
    if known.form == "duration" and isinstance(current, str):
        return _seconds(current) == _seconds(learnt)
    if isinstance(current, float) and isinstance(learnt, float):
        # Tools print GiB and MiB with different roundings.
        return math.isclose(current, learnt, rel_tol=0.005)
    return False


def _seconds(text: str) -> int | None:
    days, _, clock = text.rpartition("-")
    parts = clock.split(":")
    if len(parts) != len(("hours", "minutes", "seconds")) or not all(
        part.isdecimal() for part in [days or "0", *parts]
    ):
        return None
    hours, minutes, seconds = map(int, parts)
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def plain(value: Any) -> Any:
    """Round-trip YAML as plain data."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bool) or value is None:
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value
