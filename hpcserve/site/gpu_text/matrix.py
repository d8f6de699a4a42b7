"""`nvidia-smi topo -m`: a matrix of how near GPUs and NICs are, whatever the width of its columns."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcserve.site.gpu_text.failures import find_failure
from hpcserve.site.gpu_text.topology import DISTANCES, GpuSeat, GpuTopology
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import Line, lines_of, without_colours

__all__ = ["looks_like_matrix", "parse_matrix"]

_WANTED = "the matrix that `nvidia-smi topo -m` prints"
_CLASS = re.compile(r"X|NV[0-9]{1,3}|PIX|PXB|PHB|NODE|SYS")
_GPU = re.compile(r"GPU([0-9]{1,4})")
_COLUMN = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_LEGEND = re.compile(r"(NIC[0-9]{1,4}): {0,8}([A-Za-z0-9_.:-]{1,64})")
_TAIL = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_WORD = re.compile(r"\S{1,4096}")
_LOOKS = re.compile(r"\bGPU0[^\n]{0,4096}CPU Affinity")


@dataclass(frozen=True, slots=True)
class _Heading:
    line: Line
    columns: tuple[str, ...]
    """GPUs first, then NICs."""
    tail: tuple[str, ...]

    @property
    def gpus(self) -> int:
        return sum(_GPU.fullmatch(column) is not None for column in self.columns)


def looks_like_matrix(text: str) -> bool:
    """Whether a text holds the heading of such a matrix."""
    at = text.find("CPU Affinity")
    return at >= 0 and _LOOKS.search(without_colours(text[max(0, at - 4096) : at + 12])) is not None


def parse_matrix(text: str, source: str) -> GpuTopology:
    """The matrix; raises InputError where it has no heading, lacks a row or a cell, or holds an unknown class."""
    mistakes = Mistakes(source)
    lines = lines_of(text, mistakes)
    heading = _heading(lines)
    if heading is None:
        if not find_failure(lines, mistakes, wanted=_WANTED):
            mistakes.add(None, "no heading `GPU0 GPU1 ... CPU Affinity`", _WANTED, "give the whole output")
        raise mistakes.error()
    seats = _seats(lines, heading, mistakes)
    names = _legend(lines)
    mistakes.check()
    return GpuTopology(
        gpus=tuple(seats),
        nics=tuple(names.get(column, column) for column in heading.columns[heading.gpus :]),
        has_gpu_numa_column="GPU NUMA ID" in heading.tail,
        notes=tuple(_one_sided(seats)),
    )


def _heading(lines: Sequence[Line]) -> _Heading | None:
    for line in lines:
        words = line.text.split()
        # Without colours the heading begins like a row; what follows the first word tells them apart.
        if not words or words[0] != "GPU0" or (len(words) > 1 and _CLASS.fullmatch(words[1])):
            continue
        end = line.text.find("CPU Affinity")
        columns = tuple(line.text[: end if end >= 0 else None].split())
        tail = tuple(name for name in _TAIL if name in line.text)
        gpus = [column for column in columns if _GPU.fullmatch(column)]
        in_order = list(columns[: len(gpus)]) == [f"GPU{index}" for index in range(len(gpus))]
        if in_order and len(set(columns)) == len(columns) and all(_COLUMN.fullmatch(column) for column in columns):
            return _Heading(line, columns, tail)
    return None


def _seats(lines: Sequence[Line], heading: _Heading, mistakes: Mistakes) -> list[GpuSeat]:
    seats: dict[int, GpuSeat] = {}
    for line in lines:
        words = list(_WORD.finditer(line.text))
        row = _GPU.fullmatch(words[0][0]) if words else None
        if row is None or line is heading.line:
            continue
        index = int(row[1])
        if index >= heading.gpus:
            mistakes.add(line.at(), f"a row GPU{index} without a column", _WANTED, "give the whole output of one host")
        elif index in seats:
            mistakes.add(line.at(), f"a second row GPU{index}", "each GPU once", "give the output of one host")
        else:
            seats[index] = _seat(index, line, words[1:], heading, mistakes)
    for index in range(heading.gpus):
        if index not in seats:
            mistakes.add(heading.line.at(), f"no row for the column GPU{index}", _WANTED, "give the whole output")
    return [seats[index] for index in sorted(seats)]


def _seat(index: int, line: Line, words: Sequence[re.Match[str]], heading: _Heading, mistakes: Mistakes) -> GpuSeat:
    width = len(heading.columns)
    for word in words[:width]:
        if not _CLASS.fullmatch(word[0]):
            mistakes.add(
                line.at(word.start() + 1),
                f"`{word[0][:40]}` in the row of GPU{index}",
                f"X, NV1 and so on, {', '.join(DISTANCES)}",
                "give the output unchanged",
            )
    cells = [word[0] for word in words]
    if not width <= len(cells) <= width + len(heading.tail):
        mistakes.add(
            line.at(),
            f"{len(cells)} cells in the row of GPU{index}",
            f"{width} to {width + len(heading.tail)}, as in the heading",
            "give the output unchanged, without broken lines",
        )
    tail = dict(zip(heading.tail, cells[width:], strict=False))
    cpu, numa, own = (None if tail.get(name) in {None, "N/A"} else tail[name] for name in _TAIL)
    return GpuSeat(
        index=index,
        to_gpus=tuple(cells[: heading.gpus]),
        to_nics=tuple(cells[heading.gpus : width]),
        cpu_affinity=cpu,
        numa_affinity=numa,
        gpu_numa_id=own,
    )


def _legend(lines: Sequence[Line]) -> dict[str, str]:
    found = (_LEGEND.fullmatch(line.text.strip()) for line in lines)
    return {match[1]: match[2] for match in found if match is not None}


def _one_sided(seats: Sequence[GpuSeat]) -> list[str]:
    return [
        f"GPU{one.index} says {one.to_gpus[two.index]} to GPU{two.index}, which says {two.to_gpus[one.index]}"
        for one in seats
        for two in seats[one.index + 1 :]
        if one.to_gpus[two.index] != two.to_gpus[one.index]
    ][:8]
