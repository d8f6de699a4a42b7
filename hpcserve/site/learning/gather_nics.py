"""The NICs of one node: InfiniBand ports that are up, and Ethernet's for the admin to choose from."""

from collections.abc import Iterable
from dataclasses import dataclass

from hpcserve.site.gpu_text import GpuTopology
from hpcserve.site.host_text import Interface, RdmaDevice, SysfsDump
from hpcserve.site.infiniband_text import AdapterPort, AdapterPorts
from hpcserve.site.learning.facts import NicFacts
from hpcserve.site.pcie import GT_PER_S, slot_gbit_per_s

__all__ = ["NodeNics", "nics_of", "pcie_gb_per_s", "plain_ethernet"]

_BITS = 8
_MBIT_PER_GBIT = 1000

_FAR = "SYS"
"""The word of `nvidia-smi topo -m` for a NIC behind another socket: near no GPU."""


@dataclass(frozen=True, kw_only=True)
class NodeNics:
    """RDMA ports that are up, by their link layer."""

    infiniband: tuple[NicFacts, ...]
    ethernet: tuple[NicFacts, ...]
    """Only the admin knows whether they may carry KV by RoCE."""


def nics_of(
    host: str, matrix: GpuTopology | None, ports: AdapterPorts | None, sysfs: SysfsDump | None, notes: list[str]
) -> NodeNics:
    """RDMA ports that are up; those that are down, or near no GPU, are named in `notes`."""
    devices = {device.name: device for device in sysfs.rdma} if sysfs else {}
    listed: tuple[AdapterPort, ...] = ()
    source = ""
    if ports is not None:
        listed, source = ports.ports, "ibstat"
    elif sysfs is not None:
        listed, source = tuple(port for device in sysfs.rdma for port in device.ports), "/sys/class/infiniband"
    infiniband: list[NicFacts] = []
    ethernet: list[NicFacts] = []
    for port in listed:
        if not port.is_up:
            notes.append(f"{host}: {port.ucx_name} is left out, it is {port.state}/{port.physical_state} by {source}")
            continue
        device = devices.get(port.device)
        near = _near(port.device, matrix, device.numa if device is not None else None)
        is_infiniband = port.link_layer == "InfiniBand"
        if near == () and is_infiniband:
            notes.append(f"{host}: {port.ucx_name} is left out, it is nearest to no GPU (storage or front end?)")
            continue
        nic = NicFacts(
            name=port.ucx_name,
            kind="infiniband" if is_infiniband else "roce",
            gbit_per_s=port.rate_gbit_per_s,
            source=f"{source} ({host})",
            numa=device.numa if device is not None else None,
            gpus=near,
            guid=port.guid,
            slot_gb_per_s=_slot(device),
        )
        (infiniband if is_infiniband else ethernet).append(nic)
    return NodeNics(infiniband=tuple(infiniband), ethernet=tuple(ethernet))


def plain_ethernet(host: str, interfaces: Iterable[object]) -> tuple[NicFacts, ...]:
    """Interfaces of PCI devices that are up and say their speed, as NICs that may carry KV by TCP."""
    known = [one for one in interfaces if isinstance(one, Interface)]
    others = {one.name for one in known if one.kind not in {None, "ether"}}
    found: dict[str, NicFacts] = {}
    for one in known:
        if one.is_up and one.mbit_per_s and one.is_hardware and one.name not in others:
            nic = NicFacts(
                name=one.name,
                kind="ethernet",
                gbit_per_s=one.mbit_per_s / _MBIT_PER_GBIT,
                source=f"/sys/class/net ({host})",
                numa=one.numa,
                gpus=(),
            )
            found.setdefault(one.name, nic)
    return tuple(found.values())


def _slot(device: RdmaDevice | None) -> float | None:
    """One-way GB/s of a device's slot as it runs now."""
    if device is None or device.pcie_lanes is None:
        return None
    generation = next((number for number, rate in GT_PER_S.items() if rate == device.pcie_gt_per_s), None)
    return pcie_gb_per_s(generation, device.pcie_lanes)


def pcie_gb_per_s(generation: int | None, lanes: int | None) -> float | None:
    """One-way GB/s of a slot; None for a generation that is not known."""
    if generation is None or generation not in GT_PER_S or lanes is None:
        return None
    return round(slot_gbit_per_s(gt_per_s=GT_PER_S[generation], lanes=lanes) / _BITS, 1)


def _near(device: str, matrix: GpuTopology | None, numa: int | None) -> tuple[int, ...] | None:
    """GPUs whose nearest NIC this is, by path, else by NUMA node; None where neither is known."""
    if matrix is None or device not in matrix.nics:
        return None
    nearest = [matrix.nearest_nics(gpu.index) for gpu in matrix.gpus]
    if all(one.distance not in {None, _FAR} for one in nearest):
        return tuple(index for index, one in enumerate(nearest) if device in one.nics)
    if numa is None or any(gpu.cpu_numa is None for gpu in matrix.gpus):
        return None
    return tuple(gpu.index for gpu in matrix.gpus if gpu.cpu_numa == numa) or None
