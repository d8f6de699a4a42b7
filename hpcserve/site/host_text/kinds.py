"""What a node prints of itself, as kinds, and what is understood of it as plain data."""

from collections.abc import Mapping
from typing import Any

from hpcserve.site.host_text.host import Cores, Interface, SysfsDump
from hpcserve.site.host_text.ip_addresses import looks_like_ip_addresses, parse_ip_addresses
from hpcserve.site.host_text.lscpu import looks_like_lscpu, parse_lscpu
from hpcserve.site.host_text.sysfs import looks_like_sysfs, parse_sysfs
from hpcserve.site.kind import Kind

__all__ = ["KINDS"]


def _cores_understood(found: Cores) -> Mapping[str, Any]:
    return {
        "cpus": found.cpus,
        "cores": found.cores,
        "sockets": found.sockets,
        "threads_per_core": found.threads_per_core,
        "model": found.model,
        "architecture": found.architecture,
        "numa_cpus": {str(node): cpus for node, cpus in found.numa_cpus.items()},
    }


def _interfaces_understood(found: tuple[Interface, ...]) -> Mapping[str, Any]:
    return {"interfaces": [_interface(one) for one in found]}


def _interface(one: Interface) -> Mapping[str, Any]:
    told = {
        "name": one.name,
        "up": one.is_up,
        "mtu": one.mtu,
        "kind": one.kind,
        "addresses": [f"{address.address}/{address.prefix}" for address in one.addresses],
        "gbit_per_s": None if one.mbit_per_s is None else one.mbit_per_s / 1e3,
        "numa": one.numa,
    }
    return {key: value for key, value in told.items() if value not in (None, [])}


def _sysfs_understood(found: SysfsDump) -> Mapping[str, Any]:
    return {
        "numa_cpus": {str(node): cpus for node, cpus in found.numa_cpus.items()},
        "interfaces": [_interface(one) for one in found.interfaces],
        "rdma": [
            {
                "name": device.name,
                "numa": device.numa,
                "pcie_gt_per_s": device.pcie_gt_per_s,
                "pcie_lanes": device.pcie_lanes,
                "ports": [
                    {
                        "name": port.ucx_name,
                        "up": port.is_up,
                        "gbit_per_s": port.rate_gbit_per_s,
                        "link_layer": port.link_layer,
                    }
                    for port in device.ports
                ],
            }
            for device in found.rdma
        ],
        "warnings": list(found.warnings),
    }


KINDS: tuple[Kind[Any], ...] = (
    Kind(
        name="lscpu",
        about="`lscpu` or `lscpu -J`: cores and NUMA nodes of one node",
        looks_like=looks_like_lscpu,
        parse=parse_lscpu,
        understood=_cores_understood,
    ),
    Kind(
        name="ip-addr",
        about="`ip -json addr`: the network interfaces of one node",
        looks_like=looks_like_ip_addresses,
        parse=parse_ip_addresses,
        understood=_interfaces_understood,
    ),
    Kind(
        name="sysfs",
        about="`grep . /sys/devices/system/node/node*/cpulist /sys/class/net/*/speed ...`: files of one node's /sys",
        looks_like=looks_like_sysfs,
        parse=parse_sysfs,
        understood=_sysfs_understood,
    ),
)
"""In the order in which a text is tried."""
