"""Text that a node prints of itself -> cores, NUMA nodes, interfaces, RDMA devices.

In: what `lscpu`, `ip -json addr` and `grep . FILES` below /sys printed. Out: `Cores`, `Interface`s, `SysfsDump`, or
every mistake at once. Touches: nothing.
"""

from hpcserve.site.host_text.host import Address, Cores, Interface, RdmaDevice, SysfsDump
from hpcserve.site.host_text.ip_addresses import parse_ip_addresses
from hpcserve.site.host_text.kinds import KINDS
from hpcserve.site.host_text.sysfs import adapter_port, natural

__all__ = [
    "KINDS",
    "Address",
    "Cores",
    "Interface",
    "RdmaDevice",
    "SysfsDump",
    "adapter_port",
    "natural",
    "parse_ip_addresses",
]
