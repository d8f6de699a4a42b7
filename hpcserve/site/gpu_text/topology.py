"""How the GPUs and NICs of one node lie to one another, as `nvidia-smi topo -m` tells it."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

__all__ = ["DISTANCES", "GpuSeat", "GpuTopology", "NearestNics"]

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""From near to far, as the legend of `nvidia-smi topo -m` explains them."""
_NVLINK = re.compile(r"NV[0-9]+")
_FIRST_NUMBER = re.compile(r"[0-9]{1,9}")
FAR = "SYS"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSeat:
    """One GPU: its class of path to every GPU (`X` to itself) and to every NIC, and where it is at home."""

    index: int
    to_gpus: tuple[str, ...]
    to_nics: tuple[str, ...]
    cpu_affinity: str | None
    """A CPU list as printed, `0-23,96-119`."""
    numa_affinity: str | None
    """A list of NUMA nodes as printed; on Grace it names memory-only nodes too. None for `N/A`."""
    gpu_numa_id: str | None
    """The NUMA node that is this GPU's own memory, on Grace; None for `N/A` or no such column."""

    @property
    def cpu_numa(self) -> int | None:
        """The NUMA node whose cores are nearest: the first of the list, as memory-only nodes stand behind it."""
        match = _FIRST_NUMBER.match(self.numa_affinity or "")
        return int(match[0]) if match else None


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestNics:
    """The NICs nearest to one GPU, and how near; no class where the node has no NIC."""

    distance: str | None
    nics: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GpuTopology:
    """The matrix of one node. GPUs stand by index, which is their place here too; NICs by column."""

    gpus: tuple[GpuSeat, ...]
    nics: tuple[str, ...]
    """Names, from the NIC legend where there is one."""
    has_gpu_numa_column: bool
    notes: tuple[str, ...] = ()
    """What was odd in the text and did not keep it from being read."""

    @property
    def gpu_classes(self) -> tuple[str, ...]:
        """Classes of path between GPUs, each once, by name."""
        return tuple(sorted({one for gpu in self.gpus for one in gpu.to_gpus} - {"X"}))

    @property
    def nvlinks(self) -> frozenset[tuple[int, int]]:
        """Pairs of GPUs with a direct NVLink by both of their rows, the lower index first."""
        joined = {
            (gpu.index, other) for gpu in self.gpus for other, kind in enumerate(gpu.to_gpus) if _NVLINK.fullmatch(kind)
        }
        return frozenset((one, two) for one, two in joined if one < two and (two, one) in joined)

    @property
    def islands(self) -> tuple[tuple[int, ...], ...]:
        """The NVLink islands of a site: of each two GPUs of one there is a direct NVLink; each GPU is in one.

        NVLink carries nothing on behalf of a third GPU, so that GPUs which only share a neighbour are apart. Each GPU
        joins the first island that it fits in.
        """
        nvlinks = self.nvlinks
        islands: list[list[int]] = []
        for gpu in range(len(self.gpus)):
            home = next((one for one in islands if all((other, gpu) in nvlinks for other in one)), None)
            if home is None:
                islands.append([gpu])
            else:
                home.append(gpu)
        return tuple(map(tuple, islands))

    @property
    def joined(self) -> tuple[tuple[int, ...], ...]:
        """GPUs that NVLinks join, directly or by way of others; a GPU without NVLink is alone."""
        group = list(range(len(self.gpus)))
        for one, two in sorted(self.nvlinks):
            if group[one] != group[two]:
                old, new = sorted((group[one], group[two]), reverse=True)
                group = [new if number == old else number for number in group]
        return tuple(tuple(at for at, one in enumerate(group) if one == number) for number in sorted(set(group)))

    def nearest_nics(self, gpu: int) -> NearestNics:
        """The NICs at the least distance from a GPU."""
        kinds = self.gpus[gpu].to_nics
        best = next((one for one in DISTANCES if one in kinds), None)
        return NearestNics(
            distance=best, nics=tuple(nic for nic, kind in zip(self.nics, kinds, strict=True) if kind == best)
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a plan for this node has to mind, in words."""
        told = list(self.notes)
        joined = self.joined
        if len(joined) > 1:
            told.append(
                f"GPUs of different NVLink islands ({_shown(joined)}) reach one another by {self._between(joined)}"
                " only: tensor parallelism across them is slow"
            )
        nvlinks = self.nvlinks
        for group in joined:
            lacking = [f"{one}-{two}" for one, two in combinations(group, 2) if (one, two) not in nvlinks]
            if lacking:
                islands = [island for island in self.islands if set(island) <= set(group)]
                told.append(
                    f"GPUs of one NVLink island without a direct NVLink: {', '.join(lacking[:8])};"
                    f" a site has islands in which there is one between each two: {_shown(islands)}"
                )
        nearest = [self.nearest_nics(gpu.index) for gpu in self.gpus]
        far = [str(gpu.index) for gpu, nics in zip(self.gpus, nearest, strict=True) if nics.distance == FAR]
        if far:
            told.append(
                f"GPU {', '.join(far)}: every NIC is across the socket interconnect (SYS); which NIC each should use"
                " must come from NUMA or from the site file"
            )
        used = {nic for nics in nearest for nic in nics.nics}
        if idle := [nic for nic in self.nics if nic not in used]:
            told.append(f"nearest to no GPU: {', '.join(idle)} (storage or front end?)")
        return tuple(told)

    def _between(self, groups: tuple[tuple[int, ...], ...]) -> str:
        home = {gpu: number for number, group in enumerate(groups) for gpu in group}
        kinds = {
            kind
            for gpu in self.gpus
            for other, kind in enumerate(gpu.to_gpus)
            if home[gpu.index] != home[other] and kind != "X"
        }
        return ", ".join(sorted(kinds))


def _shown(groups: Iterable[tuple[int, ...]]) -> str:
    return " | ".join(",".join(map(str, group)) for group in groups)
