"""Mistakes in a site's node types: GPU numbers, NICs, NVLink islands, and lists with one item for each GPU."""

from collections.abc import Iterator, Mapping
from typing import Any

from hpcserve.nouns import MOST_GPUS_PER_NODE
from hpcserve.site.reading import at, items_of, number_at, pairs_of, repeated, text_at
from hpcserve.wire import Complaint

__all__ = ["check_node_types"]


def check_node_types(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Every mistake inside `node_types`, without those of rates."""
    for name, node_type in pairs_of(raw, "node_types"):
        yield from _check_islands(name, node_type)
        yield from _check_nics(name, node_type)
        yield from _check_lists(name, node_type)


def _check_islands(name: str, node_type: Any) -> Iterator[Complaint]:
    """GPU numbers of NICs and NVLink islands against the GPU count; each GPU in one island."""
    count = number_at(node_type, "gpu", "count")
    for list_name in ("nics", "nvlink"):
        islands: dict[int, int] = {}
        for index, item in items_of(node_type, list_name):
            for position, gpu in items_of(item, "gpus"):
                if not isinstance(gpu, int) or isinstance(gpu, bool):
                    continue
                path = ("node_types", name, list_name, index, "gpus", position)
                if count is not None and count > 0 and not 0 <= gpu < count:
                    yield Complaint(
                        path=path,
                        found=f"GPU {gpu}, and `{name}` has {count} GPUs",
                        wanted=f"an index from 0 to {count - 1} was wanted",
                        remedy="correct the index or `gpu.count`",
                    )
                if list_name == "nvlink" and gpu in islands:
                    yield Complaint(
                        path=path,
                        found=f"GPU {gpu} a second time, it is already in NVLink island {islands[gpu]}",
                        wanted="each GPU in at most one NVLink island was wanted",
                        remedy="remove it from one of the two",
                    )
                islands.setdefault(gpu, index)


def _check_nics(name: str, node_type: Any) -> Iterator[Complaint]:
    path = ("node_types", name, "nics")
    nics = items_of(node_type, "nics")
    count = number_at(node_type, "gpu", "count") or 0
    for nic in repeated(text_at(item, "name") or f"nameless {index}" for index, item in nics):
        yield Complaint(
            path=path,
            found=f"two NICs named `{nic}`",
            wanted="each NIC port once was wanted",
            remedy="write one entry with the GPUs of both",
            at_key=True,
        )
    near = {gpu for _, item in nics for _, gpu in items_of(item, "gpus") if isinstance(gpu, int)}
    missing = sorted(set(range(count)) - near) if count <= MOST_GPUS_PER_NODE else []
    if missing and nics:
        yield Complaint(
            path=path,
            found=f"GPU {', '.join(map(str, missing))} of `{name}` near no NIC",
            wanted="every GPU near a NIC was wanted",
            remedy="add it to the `gpus` of the NIC that it is nearest to",
            at_key=True,
        )


def _check_lists(name: str, node_type: Any) -> Iterator[Complaint]:
    """`numa` and `cpus` have one item for each GPU."""
    count = number_at(node_type, "gpu", "count")
    for key, noun in (("numa", "NUMA nodes"), ("cpus", "CPU lists")):
        path = ("node_types", name, "gpu", key)
        values = at(node_type, "gpu", key)
        if not isinstance(values, list):
            continue
        if count is not None and len(values) != count:
            yield Complaint(
                path=path,
                found=f"{len(values)} {noun} for the {count} GPUs of `{name}`",
                wanted="one for each GPU was wanted",
                remedy="write them in the order of the GPUs, or correct `gpu.count`",
            )
        for index, value in enumerate(values) if key == "cpus" else ():
            if isinstance(value, str) and _runs_backwards(value):
                yield Complaint(
                    path=(*path, index),
                    found=f"CPU list `{value[:40]}` with a range that runs backwards",
                    wanted="low-high was wanted, as in 0-23,96-119",
                    remedy="correct it",
                )


def _runs_backwards(cpus: str) -> bool:
    bounds = [part.split("-") for part in cpus.split(",")]
    return any(
        len(pair) == 2 and all(bound.isdecimal() and len(bound) < 10 for bound in pair) and int(pair[1]) < int(pair[0])  # noqa: PLR2004
        for pair in bounds
    )
