"""Checks of RDMA devices, of what they reach of a GPU, and of what stands between the two."""

import re
from collections.abc import Iterator

from hpcserve.doctor.evidence import Evidence, RdmaPort, Wanted
from hpcserve.doctor.fabric_words import RDMA_KINDS, TCP_INSTEAD, carries_rdma, has_gpus, may_use_rdma, port_rate
from hpcserve.doctor.finding import Said, failure, fine, not_applicable, warning
from hpcserve.nouns import Nic, NicKind

__all__ = ["backend", "gpu_direct", "peer_to_peer", "rdma_devices", "rdma_files", "rdma_places", "rdma_rates"]

_LAYERS = {NicKind.INFINIBAND: "InfiniBand", NicKind.ROCE: "Ethernet"}
_GBIT_PER_GB = 8.0
_TOLERANCE = 0.95
_DMABUF_KERNEL = (5, 12)
"""Linux 5.12 is the first whose verbs register a dma-buf (kernel documentation, ib_umem_dmabuf)."""

_NO_RDMA = "the site file gives this node no InfiniBand or RoCE"


def _ports(seen: Evidence, wanted: Wanted) -> Iterator[tuple[Nic, RdmaPort | None]]:
    """The node's RDMA NICs as the site names them, each with what the kernel shows; a name without port is port 1."""
    by_name = {port.seen.ucx_name: port for port in seen.rdma}
    for nic in wanted.kind.nics:
        if nic.kind in RDMA_KINDS:
            yield nic, by_name.get(nic.name if ":" in nic.name else f"{nic.name}:1")


def rdma_devices(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether every RDMA port of the site file is there, up, and of the kind that it is said to be."""
    if not carries_rdma(wanted):
        yield not_applicable(_NO_RDMA)
        return
    good = 0
    for nic, port in _ports(seen, wanted):
        lost = f"workers near it lose {port_rate(wanted, nic.name)} or cannot start"
        if port is None:
            has = ", ".join(one.seen.ucx_name for one in seen.rdma) or "no RDMA device at all"
            yield failure(
                f"no {nic.name}; there is {has}", why=lost, remedy="load the driver, or correct `nics` in the site file"
            )
        elif not port.seen.is_up:
            state, physical = port.seen.state or "in no known state", port.seen.physical_state or "no physical state"
            yield failure(
                f"{nic.name} is {state} ({physical})",
                why=lost,
                remedy="see cable and switch port; a subnet manager must run (`ibstat`, `sminfo`)",
            )
        elif port.seen.link_layer != _LAYERS[nic.kind]:
            yield failure(
                f"{nic.name} speaks {port.seen.link_layer}, the site file says {nic.kind.value}",
                why="UCX takes other transports and settings for it than the site file gives",
                remedy="correct `kind` in the site file, or the port's link type (`mlxconfig`)",
            )
        else:
            good += 1
    if good:
        yield fine(f"{good} RDMA ports are active")


def rdma_rates(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether RDMA links came up at the rate that the site file says."""
    slow = False
    for nic, port in _ports(seen, wanted):
        nominal = nic.rate.nominal_gb_per_s
        rate = port.seen.rate_gbit_per_s if port is not None and port.seen.is_up else None
        if rate is not None and nominal is not None and rate < _TOLERANCE * nominal * _GBIT_PER_GB:
            slow = True
            yield warning(
                f"{nic.name} runs at {rate:g} Gbit/s",
                why=f"{rate / _GBIT_PER_GB:.3g} GB/s instead of {nominal:.3g} GB/s",
                remedy="see cable and switch port (`iblinkinfo -l`); reseat or replace",
            )
    if not slow:
        yield fine("RDMA links are as fast as the site file says") if carries_rdma(wanted) else not_applicable(_NO_RDMA)


def rdma_files(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether this process, in its container if it is in one, may open the devices."""
    barred = [port for _, port in _ports(seen, wanted) if port is not None and port.trouble]
    for port in barred:
        yield failure(
            f"{port.seen.device} cannot be opened: {port.trouble}",
            why="UCX does not see it and takes TCP, or ends",
            remedy="give the container /dev/infiniband, and users the right to open uverbs*",
        )
    if not barred:
        yield fine("RDMA devices can be opened") if carries_rdma(wanted) else not_applicable(_NO_RDMA)


def rdma_places(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether NICs are on the NUMA nodes that the site file says: placement pairs GPUs with near NICs by it."""
    wrong = False
    for nic, port in _ports(seen, wanted):
        if port is not None and None not in {port.numa, nic.numa} and port.numa != nic.numa:
            wrong = True
            yield warning(
                f"{nic.name} is on NUMA node {port.numa}, the site file says {nic.numa}",
                why="GPUs are paired with NICs of the other socket: up to half of the bandwidth is lost",
                remedy="correct `numa` and `gpus` of the NIC in the site file (`nvidia-smi topo -m`)",
            )
    if not wrong:
        yield fine("NICs are where the site file says") if carries_rdma(wanted) else not_applicable(_NO_RDMA)


def backend(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether NIXL's backend is the one that drives this node's NICs, and Slingshot devices are there."""
    kinds = {nic.kind for nic in wanted.kind.nics}
    transport = wanted.site.transport
    chosen = transport.backend
    own = {**transport.ucx, **{name: text for kind in kinds for name, text in transport.kinds.get(kind, {}).items()}}
    if carries_rdma(wanted) and chosen == "ucx" and not may_use_rdma(own.get("UCX_TLS", "all")):
        yield failure(
            f"UCX_TLS={own['UCX_TLS']} under `transport` of the site file leaves no RDMA transport",
            why=f"{TCP_INSTEAD} {port_rate(wanted)}",
            remedy="name rc there as well, and leave out tcp to be told where rc does not work",
        )
        return
    if NicKind.EFA in kinds and chosen != "libfabric":
        yield failure(
            "EFA with NIXL's backend ucx",
            why="UCX does not drive EFA: KV goes through software emulation or TCP",
            remedy="write `backend: libfabric` under `transport` in the site file",
        )
        return
    if NicKind.SLINGSHOT in kinds and chosen != "libfabric":
        yield warning(
            "Slingshot with NIXL's backend ucx",
            why="UCX reaches Slingshot by TCP only, at a fraction of its rate",
            remedy="write `backend: libfabric` under `transport` in the site file",
        )
    if NicKind.SLINGSHOT in kinds and not seen.slingshot:
        yield failure(
            "no Slingshot device (/dev/cxi*)",
            why="libfabric's cxi provider cannot start",
            remedy="load the driver, or give the container /dev/cxi*",
        )
        return
    yield fine(f"NIXL's backend {chosen} drives {', '.join(sorted(kind.value for kind in kinds))}")


def gpu_direct(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether a NIC can read and write GPU memory: by nvidia_peermem, or by dma-buf of the open driver."""
    if not (carries_rdma(wanted) and has_gpus(wanted)):
        yield not_applicable("no GPU memory goes over RDMA here")
        return
    if {"nvidia_peermem", "nv_peer_mem"} & seen.kernel_modules:
        yield fine("nvidia_peermem is loaded")
    elif seen.open_nvidia_driver and _kernel(seen.kernel) >= _DMABUF_KERNEL:
        yield fine("dma-buf: the open driver on a kernel that has it")
    else:
        yield failure(
            "neither nvidia_peermem nor dma-buf",
            why="NICs cannot register GPU memory: NIXL fails, or KV is staged through the host at about a third",
            remedy="modprobe nvidia_peermem, or the open NVIDIA driver on Linux 5.12 or later",
        )


def _kernel(release: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def peer_to_peer(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether something on the PCIe bus sends traffic between GPU and NIC the long way round."""
    if not has_gpus(wanted):
        yield not_applicable("no GPU")
        return
    words = seen.kernel_command_line.split()
    passed = any(word in {"iommu=pt", "iommu.passthrough=1", "intel_iommu=off", "amd_iommu=off"} for word in words)
    if seen.iommu_groups and not passed:
        yield warning(
            "the IOMMU translates (no iommu=pt on the kernel's command line)",
            why="traffic between GPU and NIC goes through the root complex: half of the bandwidth, or it hangs",
            remedy="boot with iommu=pt",
        )
    if seen.bridges_with_acs:
        yield warning(
            f"ACS redirects peers at {len(seen.bridges_with_acs)} PCI bridges, {seen.bridges_with_acs[0]} first",
            why="traffic between GPU and NIC goes through the root complex: half of the bandwidth, or it hangs",
            remedy="switch ACS off in the firmware, or with setpci at boot",
        )
    elif seen.bridges_with_acs is None:
        yield not_applicable("ACS can be read by root only")
    elif not seen.iommu_groups or passed:
        yield fine("neither IOMMU nor ACS is in the way")
