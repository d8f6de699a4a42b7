"""What proves which transport and which NIC carried a read: UCX's own words, and the NIC's counter."""

import re
from pathlib import Path

__all__ = ["nic_received_bytes", "read_transport"]

_SYSFS = Path("/sys/class")

# UCX prints a table for each operation; of its rows `| RANGE | DESCRIPTION | CONFIG |` the last cell is
# TRANSPORT/DEVICE. Seen with UCX 1.23.0.
_OPERATION = re.compile(r"\| [^|]*(?:remote memory |active message|tagged |stream |rendezvous)[^|]*\|")
_OF_READS = "remote memory read by ucp_get"
_CELLS = 3
_LANE = re.compile(r"\b(?P<transport>[a-z][a-z0-9_]*)/(?P<device>[A-Za-z0-9_.-]+(?::\d+)?)")
_IB_WORD_BYTES = 4  # port_rcv_data counts 32-bit words: InfiniBand Architecture Specification, PortCounters


def read_transport(printed: str) -> tuple[str, str] | None:
    """Transport and device that UCX says it reads with, of its last word on it; None where it said nothing.

    Several lanes of one read are joined by `+`.
    """
    lanes: dict[tuple[str, str], None] = {}
    is_read = False
    for line in printed.splitlines():
        if _OPERATION.search(line):
            is_read = _OF_READS in line
            lanes = {} if is_read else lanes
        elif is_read and line.count("|") == _CELLS + 1:
            lanes.update(dict.fromkeys(_LANE.findall(line.split("|")[_CELLS])))
    if not lanes:
        return None
    transports = dict.fromkeys(transport for transport, _ in lanes)
    devices = dict.fromkeys(device for _, device in lanes)
    return "+".join(transports), "+".join(devices)


def nic_received_bytes(nic: str, *, sysfs: Path = _SYSFS) -> int | None:
    """Bytes that the NIC has received since it is up, by its own counter; None where it has none.

    `mlx5_0:1` is port 1 of an RDMA device, any other name a network interface.
    """
    device, _, port = nic.partition(":")
    rdma = sysfs / "infiniband" / device / "ports" / (port or "1") / "counters" / "port_rcv_data"
    network = sysfs / "net" / device / "statistics" / "rx_bytes"
    for path, unit in ((rdma, _IB_WORD_BYTES), (network, 1)):
        try:
            return int(path.read_text()) * unit
        except (OSError, ValueError):
            continue
    return None
