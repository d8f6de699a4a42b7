"""`nvidia-smi -q`: all of every GPU, keys and values in sections told apart by indentation."""

import re
from collections.abc import Mapping, Sequence

from hpcserve.site.gpu_text.failures import find_failure
from hpcserve.site.gpu_text.inventory import FabricSeat, GpuInventory, InstalledGpu
from hpcserve.site.gpu_text.values import known, lanes, switched_on, whole
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import MOST_LINES_OF_A_HOST, Line, lines_of

__all__ = ["looks_like_report", "parse_report"]

_WANTED = "what `nvidia-smi -q` prints"
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
_LOOKS = re.compile(r"NVSMI LOG|^(?:[A-Za-z0-9.-]{1,253}: )?Attached GPUs\s{1,64}: ", re.MULTILINE)
_MIB = re.compile(r"([0-9]{1,12}) MiB")
_DEEPEST = 16

Values = Mapping[tuple[str, ...], str]
"""Each value by the names of its sections and its key."""


def looks_like_report(text: str) -> bool:
    """Whether a text holds the head of such a report."""
    return _LOOKS.search(text[:65536]) is not None


def parse_report(text: str, source: str) -> GpuInventory:
    """The GPUs; raises InputError where there are none, or fewer or more than the text says are attached."""
    mistakes = Mistakes(source)
    lines = lines_of(text, mistakes, most=MOST_LINES_OF_A_HOST)
    head, blocks = _blocks(lines)
    attached = head.get(("Attached GPUs",), "")
    if not blocks:
        if not mistakes.found and not find_failure(lines, mistakes, wanted=_WANTED):
            mistakes.add(None, "no GPU", _WANTED, "give the whole output")
    elif attached.isdecimal() and len(attached) < _DEEPEST and int(attached) != len(blocks):
        mistakes.add(
            lines[-1].at(),
            f"{len(blocks)} GPUs of the {int(attached)} that are attached",
            "all of them",
            "give the whole output of one host",
        )
    mistakes.check()
    gpus = tuple(_gpu(index, bus, values) for index, (bus, values) in enumerate(blocks))
    return GpuInventory(gpus=gpus, driver=known(head.get(("Driver Version",))))


def _blocks(lines: Sequence[Line]) -> tuple[Values, Sequence[tuple[str, Values]]]:
    """What stands above the first GPU, and for each GPU its PCI address and what stands below it."""
    head: dict[tuple[str, ...], str] = {}
    blocks: list[tuple[str, dict[tuple[str, ...], str]]] = []
    # Depth and path of each section that is open, the innermost last.
    sections: list[tuple[int, tuple[str, ...]]] = []
    for line in lines:
        content = line.text.lstrip()
        if content[0] == "=":
            continue
        if content[0] == "G" and (match := _GPU.fullmatch(content)):
            blocks.append((match[1], {}))
            sections = []
            continue
        depth = len(line.text) - len(content)
        while sections and sections[-1][0] >= depth:
            sections.pop()
        path = sections[-1][1] if sections else ()
        key, colon, value = content.partition(" : ")
        if colon:
            values = blocks[-1][1] if blocks else head
            values[*path, key.rstrip()] = value.strip()
        elif len(sections) < _DEEPEST:
            sections.append((depth, (*path, content)))
    return head, blocks


def _gpu(index: int, bus: str, values: Values) -> InstalledGpu:
    memory = _MIB.fullmatch(values.get(("FB Memory Usage", "Total"), ""))
    link = ("PCI", "GPU Link Info")
    return InstalledGpu(
        index=index,
        model=known(values.get(("Product Name",))),
        bus=bus,
        uuid=known(values.get(("GPU UUID",))),
        memory_mib=int(memory[1]) if memory else None,
        pcie_generation=whole(values.get((*link, "PCIe Generation", "Max"))),
        pcie_lanes=lanes(values.get((*link, "Link Width", "Max"))),
        pcie_lanes_now=lanes(values.get((*link, "Link Width", "Current"))),
        mig=switched_on(values.get(("MIG Mode", "Current"))),
        fabric=_fabric(values),
    )


def _fabric(values: Values) -> FabricSeat | None:
    section = {path[1]: value for path, value in values.items() if len(path) == 2 and path[0] == "Fabric"}  # noqa: PLR2004
    if not section:
        return None
    return FabricSeat(
        state=known(section.get("State")),
        status=known(section.get("Status")),
        cluster_uuid=known(section.get("ClusterUUID")),
        clique=whole(section.get("CliqueId")),
    )
