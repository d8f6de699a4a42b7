"""What lies inside a node of one type: NVLink islands, the host, and the way from each GPU to its NIC."""

from dataclasses import dataclass, field

from hpcserve.fabric.links import GpuAt, Link, link_of
from hpcserve.nouns import Nic, NodeType

__all__ = ["Inside"]


@dataclass(slots=True)
class Inside:
    """One node type, by the name that the site gives it."""

    name: str
    kind: NodeType
    nics: dict[int, Nic] = field(init=False)
    """For each GPU the NIC that carries its KV."""
    like: dict[int, str] = field(init=False)
    """For each GPU its type and the first NIC that is equal to its own, as path classes are named."""

    def __post_init__(self) -> None:
        self.nics = _nearest_nics(self.kind)
        self.like = {}
        for gpu, nic in self.nics.items():
            far = self._crosses(gpu, nic)
            first = next(
                one for one in self.kind.nics if (one.kind, one.rate, one.slot) == (nic.kind, nic.rate, nic.slot)
            )
            self.like[gpu] = f"{self.name}.{first.name}" + (" of another NUMA node" if far else "")

    def way(self, a: GpuAt, b: GpuAt) -> tuple[str, tuple[Link, ...]]:
        """`nvlink` or `host`, and the links of that way between two GPUs of one node."""
        here = f"node_types, {self.name}"
        for index, island in enumerate(self.kind.nvlink):
            if a.index in island.gpus and b.index in island.gpus:
                where = f"{here}, nvlink, number {index + 1}, rate"
                return "nvlink", (
                    link_of(f"{a.node}.gpu{a.index}.nvlink out", island.rate, where),
                    link_of(f"{b.node}.gpu{b.index}.nvlink in", island.rate, where),
                )
        return "host", (self._host(a.node),)

    def port(self, gpu: GpuAt, nic: Nic) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
        """The links from a GPU out of its NIC, and those in through it: the slowest of them counts.

        A NIC of another NUMA node is reached through the host; a PCIe slot may be slower than the port in it, or the
        port slower than its slot.
        """
        where = f"node_types, {self.name}, nics, {nic.name}"
        host = (self._host(gpu.node),) if self._crosses(gpu.index, nic) else ()
        slot = [
            (link_of(f"{gpu.node}.{nic.name} slot {way}", nic.slot, f"{where}, slot"),) if nic.slot else ()
            for way in ("out", "in")
        ]
        port = [link_of(f"{gpu.node}.{nic.name} {way}", nic.rate, f"{where}, rate") for way in ("out", "in")]
        return (*host, *slot[0], port[0]), (port[1], *slot[1], *host)

    def _crosses(self, gpu: int, nic: Nic) -> bool:
        numa = self.kind.gpu.numa
        return numa is not None and nic.numa is not None and gpu < len(numa) and numa[gpu] != nic.numa

    def _host(self, node: str) -> Link:
        return link_of(f"{node}.host", self.kind.host_path, f"node_types, {self.name}, host_path")


def _nearest_nics(kind: NodeType) -> dict[int, Nic]:
    nearest: dict[int, Nic] = {}
    for nic in kind.nics:
        for gpu in nic.gpus:
            if gpu not in nearest or _rate(nic) > _rate(nearest[gpu]):
                nearest[gpu] = nic
    return nearest


def _rate(nic: Nic) -> float:
    """GB/s that a NIC and its slot can both carry; 0 where nobody knows."""
    rates = [rate.known_gb_per_s or 0.0 for rate in (nic.rate, nic.slot) if rate is not None]
    return min(rates)
