"""`nvidia-smi --query-gpu=... --format=csv`: a line for each GPU below a line with the names of the fields."""

import re
from collections.abc import Mapping, Sequence

from hpcserve.site.gpu_text.failures import find_failure
from hpcserve.site.gpu_text.inventory import FabricSeat, GpuInventory, InstalledGpu
from hpcserve.site.gpu_text.values import known, lanes, switched_on, whole
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import Line, lines_of

__all__ = ["looks_like_query", "parse_query"]

_WANTED = "what `nvidia-smi --query-gpu=index,name,memory.total,... --format=csv` prints"
_UNIT = re.compile(r" \[[A-Za-z/%]{1,8}\]$")
_FIELD = re.compile(r"[a-z][A-Za-z0-9_.]{0,63}")
# Fields of which one always is asked for; by them the line with the names is known.
_USUAL = frozenset(
    {"index", "name", "gpu_name", "uuid", "gpu_uuid", "pci.bus_id", "gpu_bus_id", "memory.total", "fabric.clusterUuid"}
)


def _names(line: str) -> tuple[str, ...] | None:
    """The fields' names where a line is the line with the names."""
    names = tuple(_UNIT.sub("", name.strip()) for name in line.split(","))
    return names if _USUAL.intersection(names) and all(_FIELD.fullmatch(name) for name in names) else None


def looks_like_query(text: str) -> bool:
    """Whether the first line that is not empty names such fields."""
    lines = lines_of(text[:65536], Mistakes(""))
    first = lines[0].text if lines else ""
    return _names(first) is not None


def parse_query(text: str, source: str) -> GpuInventory:
    """The GPUs by index; raises InputError without the line of names, and for lines with more or fewer fields."""
    mistakes = Mistakes(source)
    lines = lines_of(text, mistakes)
    names = _names(lines[0].text) if lines else None
    if names is None:
        if not find_failure(lines, mistakes, wanted=_WANTED):
            mistakes.add(lines[0].at() if lines else None, "no names of fields", _WANTED, "leave noheader out")
        raise mistakes.error()
    rows = _rows(lines[1:], names, mistakes)
    if not rows:
        mistakes.add(lines[0].at(), "no GPU below the names", _WANTED, "collect it on a node with GPUs")
    indexes = [whole(row.get("index")) for row in rows]
    if "index" in names and sorted(index for index in indexes if index is not None) != list(range(len(rows))):
        mistakes.add(lines[0].at(), "indexes that are not 0, 1 and so on", "all GPUs of one host", "give all of them")
    mistakes.check()
    gpus = [_gpu(place, row) for place, row in enumerate(rows)]
    gpus.sort(key=lambda gpu: gpu.index)
    return GpuInventory(gpus=tuple(gpus), driver=known(rows[0].get("driver_version")))


def _rows(lines: Sequence[Line], names: Sequence[str], mistakes: Mistakes) -> Sequence[Mapping[str, str]]:
    rows = []
    for line in lines:
        fields = [field.strip() for field in line.text.split(",")]
        if len(fields) != len(names):
            mistakes.add(
                line.at(), f"{len(fields)} fields", f"{len(names)}, one for each name", "give the output unchanged"
            )
        else:
            rows.append(dict(zip(names, fields, strict=True)))
    return rows


def _gpu(place: int, row: Mapping[str, str]) -> InstalledGpu:
    index = whole(row.get("index"))
    return InstalledGpu(
        index=place if index is None else index,
        model=known(row.get("name", row.get("gpu_name"))),
        bus=known(row.get("pci.bus_id", row.get("gpu_bus_id"))),
        uuid=known(row.get("uuid", row.get("gpu_uuid"))),
        memory_mib=whole(row.get("memory.total")),
        pcie_generation=whole(row.get("pcie.link.gen.max")),
        pcie_lanes=lanes(row.get("pcie.link.width.max")),
        pcie_lanes_now=lanes(row.get("pcie.link.width.current")),
        mig=switched_on(row.get("mig.mode.current")),
        fabric=_fabric(row),
    )


def _fabric(row: Mapping[str, str]) -> FabricSeat | None:
    if not any(name.startswith("fabric.") for name in row):
        return None
    return FabricSeat(
        state=known(row.get("fabric.state")),
        status=known(row.get("fabric.status")),
        cluster_uuid=known(row.get("fabric.clusterUuid")),
        clique=whole(row.get("fabric.cliqueId")),
    )
