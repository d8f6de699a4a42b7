"""What a node says of its cores, NUMA nodes, network interfaces and RDMA devices."""

from collections.abc import Mapping
from dataclasses import dataclass

from hpcserve.site.infiniband_text import AdapterPort
from hpcserve.site.pcie import slot_gbit_per_s

__all__ = ["Address", "Cores", "Interface", "RdmaDevice", "SysfsDump"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """The processors of one node, as `lscpu` tells them; None for what it does not print."""

    cpus: int
    """Logical ones."""
    threads_per_core: int | None
    cores_per_socket: int | None
    sockets: int | None
    model: str | None
    architecture: str | None
    numa_cpus: Mapping[int, str]
    """For each NUMA node its CPU list, `0-23,96-119`; nodes without cores (GPU memory) have an empty one."""

    @property
    def cores(self) -> int | None:
        """Physical cores, where the text says how many."""
        if self.cores_per_socket is None or self.sockets is None:
            return None
        return self.cores_per_socket * self.sockets


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An IP address of an interface with the length of its prefix."""

    address: str
    prefix: int
    usable: bool = True
    """Whether others can be given it: it is not link-local, and no check for a double of it is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """A network interface; None for what the text does not say."""

    name: str
    is_up: bool | None = None
    """Whether it can carry data now."""
    mtu: int | None = None
    kind: str | None = None
    """`ether`, `infiniband` or `loopback`."""
    addresses: tuple[Address, ...] = ()
    mbit_per_s: int | None = None
    """None where the link is down or the driver does not know."""
    numa: int | None = None
    is_hardware: bool | None = None
    """Whether a PCI device is behind it: the speed of a virtual interface is invented (veth: 10 Gbit/s)."""

    @property
    def usable_addresses(self) -> tuple[str, ...]:
        """Its addresses that others can be given, in the kernel's order."""
        return tuple(one.address for one in self.addresses if one.usable)


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaDevice:
    """An RDMA device of /sys/class/infiniband; None for what the dump does not hold."""

    name: str
    numa: int | None
    ports: tuple[AdapterPort, ...]
    pcie_gt_per_s: float | None
    """What each lane of its slot runs at, in GT/s."""
    pcie_lanes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SysfsDump:
    """What `grep . FILES` printed of files below /sys."""

    numa_cpus: Mapping[int, str]
    interfaces: tuple[Interface, ...]
    rdma: tuple[RdmaDevice, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """RDMA ports that their PCIe slot holds back, in words."""
        told = []
        for device in self.rdma:
            rates = [port.rate_gbit_per_s for port in device.ports if port.is_up and port.rate_gbit_per_s is not None]
            if device.pcie_gt_per_s is None or device.pcie_lanes is None or not rates:
                continue
            slot = slot_gbit_per_s(gt_per_s=device.pcie_gt_per_s, lanes=device.pcie_lanes)
            if slot < sum(rates):
                told.append(
                    f"{device.name}: its slot carries {slot:.0f} Gbit/s ({device.pcie_lanes} lanes at"
                    f" {device.pcie_gt_per_s:g} GT/s), its ports {sum(rates):g}"
                )
        return tuple(told)
