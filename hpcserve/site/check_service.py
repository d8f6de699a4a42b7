"""Mistakes in service and sweep YAML that their schemas cannot see."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

from hpcserve.nouns import Partition, Site
from hpcserve.site.hostlist import expand_hosts, fold_hosts
from hpcserve.site.reading import Path, items_of, nearest, number_at, repeated, text_at
from hpcserve.units import duration_s
from hpcserve.wire import Complaint

__all__ = ["check_service", "check_sweep"]

_LEAST_TIME_S = 180
"""Jobs are told to stop 60 s before their end, which leaves two minutes to start and serve."""


def check_service(raw: Mapping[str, Any], site: Site | None) -> Iterator[Complaint]:
    """Every mistake of a service as plain data; those against a site only where one is given."""
    yield from _check_pools(raw)
    yield from _check_workload(raw)
    yield from _check_time(raw)
    if site is not None:
        yield from _check_partitions(raw, site)
        yield from _check_runtime(raw, site)


def _check_pools(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    mode = text_at(raw, "mode")
    roles = [text_at(pool, "role") for _, pool in items_of(raw, "pools")]
    if not roles or any(role not in ("prefill", "decode", "aggregated") for role in roles):
        return
    missing = [role for role in ("prefill", "decode") if role not in roles]
    if missing and (mode == "disaggregated" or (mode == "auto" and len(missing) == 1)):
        yield Complaint(
            path=("pools",),
            found=f"no {' and no '.join(missing)} pool, and `mode` is {mode}",
            wanted="a prefill and a decode pool were wanted",
            remedy=f"add a pool of role {missing[0]}, or write `mode: aggregated`",
            at_key=True,
        )


def _check_workload(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    input_tokens = number_at(raw, "workload", "input_tokens")
    cached = number_at(raw, "workload", "cached_prefix_tokens")
    if input_tokens is not None and cached is not None and cached >= input_tokens > 0:
        yield Complaint(
            path=("workload", "cached_prefix_tokens"),
            found=f"{cached} cached tokens of {input_tokens}",
            wanted="fewer than `input_tokens` were wanted: an engine always computes the last one",
            remedy="correct one of the two",
        )


def _check_partitions(raw: Mapping[str, Any], site: Site) -> Iterator[Complaint]:
    """Of the service's partition and the pools' own: what the site lacks, and what those in use do not allow."""
    if "partition" not in raw:
        return
    if raw["partition"] is None and site.slurm is not None:
        yield Complaint(
            path=("partition",),
            found="no partition",
            wanted=f"one of site `{site.name}` was wanted",
            remedy=nearest("", site.partitions, none="describe one in the site"),
        )
    used: dict[str, Path] = {}
    for path, name, is_used in _named_partitions(raw):
        if name not in site.partitions:
            yield Complaint(
                path=path,
                found=f"unknown partition `{name}`",
                wanted=f"one of site `{site.name}` was wanted",
                remedy=nearest(name, site.partitions, none="the site has none: write `partition: null`"),
            )
        elif is_used:
            used.setdefault(name, path)
    for name, path in used.items():
        yield from _check_limits(raw, name, path, site.partitions[name])
    yield from _check_together(used, site)


def _named_partitions(raw: Mapping[str, Any]) -> Iterator[tuple[Path, str, bool]]:
    """Each partition where it is named, and whether workers are placed there."""
    pools = items_of(raw, "pools")
    name = text_at(raw, "partition")
    if name is not None:
        yield ("partition",), name, not pools or any(text_at(pool, "partition") is None for _, pool in pools)
    for index, pool in pools:
        name = text_at(pool, "partition")
        if name is not None:
            yield ("pools", index, "partition"), name, True


def _check_limits(raw: Mapping[str, Any], name: str, path: Path, partition: Partition) -> Iterator[Complaint]:
    if partition.account_required and raw.get("account") is None:
        yield Complaint(
            path=("account",) if "account" in raw else path,
            found="no account",
            wanted=f"partition `{name}` takes no job without one",
            remedy="add `account:`",
            at_key=True,
        )
    seconds, most = _seconds(text_at(raw, "time")), _seconds(partition.max_time)
    if seconds is not None and most is not None and seconds > most:
        yield Complaint(
            path=("time",),
            found=f"a time of {text_at(raw, 'time')}",
            wanted=f"at most {partition.max_time} was wanted, the limit of partition `{name}`",
            remedy="ask for less, or for another partition",
        )


def _check_together(used: Mapping[str, Path], site: Site) -> Iterator[Complaint]:
    """What keeps several partitions from being components of one job."""
    first, *others = used or ("",)
    if others and site.slurm is not None and site.slurm.hetjobs is False:
        yield Complaint(
            path=used[others[0]],
            found=f"partition `{others[0]}` beside `{first}`",
            wanted=f"one partition was wanted: site `{site.name}` takes no heterogeneous jobs (`slurm.hetjobs`)",
            remedy="place all pools in one partition",
        )
    hosts = {name: frozenset(expand_hosts(site.partitions[name].hosts)) for name in used} if others else {}
    for one, other in combinations(hosts, 2):
        shared = hosts[one] & hosts[other]
        if shared:
            yield Complaint(
                path=used[other],
                found=f"partition `{other}`, which shares {fold_hosts(sorted(shared))} with `{one}`",
                wanted="partitions without nodes in common were wanted: Slurm may give both the same node",
                remedy="place these pools in one partition, or in others",
            )


def _check_runtime(raw: Mapping[str, Any], site: Site) -> Iterator[Complaint]:
    if text_at(raw, "engine") == "vllm" and "vllm" not in site.runtimes:
        yield Complaint(
            path=("engine",),
            found=f"site `{site.name}` says nothing of how vllm is entered",
            wanted="an engine of the site's `runtimes` was wanted",
            remedy="add `vllm` to the site's `runtimes`, or use `engine: sim`",
        )


def _check_time(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    seconds = _seconds(text_at(raw, "time"))
    if seconds is not None and seconds < _LEAST_TIME_S:
        yield Complaint(
            path=("time",),
            found=f"a time of {text_at(raw, 'time')}",
            wanted=f"at least {_LEAST_TIME_S // 60} minutes were wanted, to start, serve and stop",
            remedy="ask for more",
        )


def _seconds(duration: str | None) -> int | None:
    """Seconds of a time limit; None where there is none or the text is not one, which the schema reports."""
    try:
        return None if duration is None else duration_s(duration)
    except ValueError:
        return None


def check_sweep(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Every mistake of a sweep as plain data."""
    yield from _check_time(raw)
    placements = items_of(raw, "placements")
    for name in repeated(text_at(placement, "name") or f"nameless {index}" for index, placement in placements):
        yield Complaint(
            path=("placements",),
            found=f"two placements named `{name}`",
            wanted="a name for each was wanted: their runs are told apart by it",
            remedy="rename one",
            at_key=True,
        )
    for index, placement in placements:
        distance = text_at(placement, "distance")
        if text_at(placement, "mode") == "aggregated" and distance not in (None, "best"):
            yield Complaint(
                path=("placements", index, "distance"),
                found=f"distance {distance} of an aggregated placement",
                wanted="no distance was wanted: nothing is handed over",
                remedy="remove it",
            )
    rates = [repr(rate.get("request_rate")) for _, rate in items_of(raw, "rates") if isinstance(rate, dict)]
    for rate in repeated(rates):
        yield Complaint(
            path=("rates",),
            found=f"request_rate {rate} twice",
            wanted="each rate once was wanted",
            remedy="use `repetitions` to measure it again",
            at_key=True,
        )
