"""Adapter ports of one host, as `ibstat` and /sys/class/infiniband tell them."""

from dataclasses import dataclass

__all__ = ["AdapterPort", "AdapterPorts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPort:
    """One port of one RDMA device."""

    device: str
    """`mlx5_0`."""
    port: int
    state: str
    """`Active`, `Initializing`, `Armed` or `Down`."""
    physical_state: str
    """`LinkUp`, `Polling`, `Disabled` and others."""
    rate_gbit_per_s: float | None
    """What the port runs at now; a port that is down may still print a figure."""
    link_layer: str
    """`InfiniBand` or `Ethernet`."""
    device_type: str | None = None
    """`MT4129`; None where the tool prints none."""
    guid: str | None = None
    """The port's GUID: 16 hexadecimal digits without `0x`."""

    @property
    def is_up(self) -> bool:
        """Whether it can carry data now; UCX asks for no other state (uct_ib_device_port_check)."""
        return self.state == "Active"

    @property
    def ucx_name(self) -> str:
        """What UCX_NET_DEVICES takes for it: `mlx5_0:1`."""
        return f"{self.device}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterPorts:
    """All ports of one host."""

    ports: tuple[AdapterPort, ...]

    def label(self, port: AdapterPort) -> str:
        """The device's name, with the port where the device has several."""
        alone = sum(other.device == port.device for other in self.ports) == 1
        return port.device if alone else port.ucx_name

    @property
    def infiniband_up(self) -> tuple[AdapterPort, ...]:
        """InfiniBand ports that can carry KV."""
        return tuple(port for port in self.ports if port.is_up and port.link_layer == "InfiniBand")

    @property
    def ethernet_up(self) -> tuple[AdapterPort, ...]:
        """Ethernet ports that are up; they carry KV only where the site says that they speak RoCE."""
        return tuple(port for port in self.ports if port.is_up and port.link_layer == "Ethernet")

    @property
    def unusable(self) -> tuple[AdapterPort, ...]:
        """Ports that carry nothing now."""
        return tuple(port for port in self.ports if port not in self.infiniband_up + self.ethernet_up)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why ports are unusable, and what their states mean."""
        told = []
        for port in self.unusable:
            name = self.label(port)
            if port.state in {"Initializing", "Initialize", "Armed"}:
                told.append(f"{name}: {port.state}; no subnet manager has brought it up")
            elif port.physical_state == "Polling":
                told.append(f"{name}: {port.state}, Polling; no cable, or the other end is off")
            elif port.is_up:
                told.append(
                    f"{name}: up, with the link layer {port.link_layer!r} that is neither InfiniBand nor Ethernet"
                )
            else:
                told.append(f"{name}: {port.state}, {port.physical_state}")
        if self.ethernet_up:
            names = ", ".join(self.label(port) for port in self.ethernet_up)
            told.append(
                f"{names}: Ethernet; of use for KV only where the fabric is set up for RoCE, which no tool prints"
            )
        return tuple(told)
