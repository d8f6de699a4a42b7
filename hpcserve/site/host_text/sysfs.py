"""Lines `FILE:VALUE` that `grep . FILES` prints of files below /sys.

The files that are understood:

    /sys/devices/system/node/node*/cpulist
    /sys/class/net/*/{speed,operstate,mtu,device/numa_node}
    /sys/class/infiniband/*/device/{numa_node,current_link_speed,current_link_width}
    /sys/class/infiniband/*/ports/*/{state,phys_state,rate,link_layer}
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from hpcserve.site.host_text.host import Interface, RdmaDevice, SysfsDump
from hpcserve.site.infiniband_text import AdapterPort
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import Line, lines_of

__all__ = ["adapter_port", "looks_like_sysfs", "natural", "parse_sysfs"]

_WANTED = "lines `FILE:VALUE`, as `grep . FILES` prints them"
_NAME = r"[A-Za-z0-9_.-]{1,64}"
_LINE = re.compile(r"(/sys/[A-Za-z0-9_./:@-]{1,512}?):(.*)$")
_LOOKS = re.compile(r"^(?:[A-Za-z0-9.-]{1,253}: )?/sys/(?:devices/system/node|class/(?:net|infiniband))/", re.MULTILINE)
_NODE = re.compile(r"/sys/devices/system/node/node([0-9]{1,5})/cpulist")
_NET = re.compile(rf"/sys/class/net/({_NAME})/(speed|operstate|mtu|device/numa_node)")
_RDMA = re.compile(rf"/sys/class/infiniband/({_NAME})/device/(numa_node|current_link_speed|current_link_width)")
_PORT = re.compile(rf"/sys/class/infiniband/({_NAME})/ports/([0-9]{{1,3}})/(state|phys_state|rate|link_layer)")
_CPUS = re.compile(r"(?:[0-9]{1,6}(?:-[0-9]{1,6})?(?:,[0-9]{1,6}(?:-[0-9]{1,6})?)*)?")
_WHOLE = re.compile(r"-?[0-9]{1,9}")
_FIGURE = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
# `4: ACTIVE`, `5: LinkUp`, `0: <unknown>`: the kernel's number and name of a state, here as ibstat names it.
_STATE = re.compile(r"[0-9]{1,2}: ([A-Za-z_<> ]{1,32})")
_STATES = {"ACTIVE": "Active", "INIT": "Initializing", "ARMED": "Armed", "DOWN": "Down", "ACTIVE_DEFER": "Active defer"}
_ANY = re.compile(r".{1,256}")
_COMPLAINT = re.compile(r"grep: ")

Values = dict[str, str]


@dataclass(slots=True)
class _Found:
    numa: dict[int, str] = field(default_factory=dict)
    net: dict[str, Values] = field(default_factory=dict)
    rdma: dict[str, Values] = field(default_factory=dict)
    ports: dict[tuple[str, int], Values] = field(default_factory=dict)


def looks_like_sysfs(text: str) -> bool:
    """Whether a text holds a line that begins with one of those directories."""
    return _LOOKS.search(text) is not None


def parse_sysfs(text: str, source: str) -> SysfsDump:
    """What the files say; raises InputError for lines of another form, values of another kind, and text without any."""
    mistakes = Mistakes(source)
    found = _Found()
    for line in lines_of(text, mistakes):
        content = line.text.strip()
        # grep says on stderr which files it could not read (a NIC that is down has no speed).
        if _COMPLAINT.match(content):
            continue
        match = _LINE.fullmatch(content)
        if match is None:
            mistakes.add(line.at(), f"another line: {content[:80]}", _WANTED, "give the output unchanged")
        else:
            _keep(match[1], match[2].strip(), line, found, mistakes)
    if not mistakes.found and not (found.numa or found.net or found.rdma or found.ports):
        mistakes.add(None, "no file that is understood", "CPU lists, interfaces or RDMA devices", "see --help")
    mistakes.check()
    return _dump(found)


def _keep(path: str, value: str, line: Line, found: _Found, mistakes: Mistakes) -> None:
    if match := _NODE.fullmatch(path):
        found.numa[int(match[1])] = value
        wanted = _CPUS
    elif match := _NET.fullmatch(path):
        found.net.setdefault(match[1], {})[match[2]] = value
        wanted = _ANY if match[2] == "operstate" else _WHOLE
    elif match := _RDMA.fullmatch(path):
        found.rdma.setdefault(match[1], {})[match[2]] = value
        wanted = _ANY if match[2] == "current_link_speed" else _WHOLE
    elif match := _PORT.fullmatch(path):
        found.ports.setdefault((match[1], int(match[2])), {})[match[3]] = value
        wanted = _STATE if match[3].endswith("state") else _ANY
    else:
        return
    if not wanted.fullmatch(value):
        mistakes.add(line.at(), f"`{value[:60]}` in {path[:80]}", "what the kernel writes there", "give it unchanged")


def _dump(found: _Found) -> SysfsDump:
    devices = dict.fromkeys([*found.rdma, *(device for device, _ in found.ports)])
    return SysfsDump(
        numa_cpus=dict(sorted(found.numa.items())),
        interfaces=tuple(_interface(name, values) for name, values in found.net.items()),
        rdma=tuple(_device(name, found) for name in devices),
    )


def _interface(name: str, values: Mapping[str, str]) -> Interface:
    speed, state = natural(values.get("speed")), values.get("operstate")
    return Interface(
        name=name,
        is_up=None if state in {None, "unknown"} else state == "up",
        mtu=natural(values.get("mtu")),
        # -1 and 0: the link is down or the driver does not know.
        mbit_per_s=speed or None,
        numa=natural(values.get("device/numa_node")),
        is_hardware="device/numa_node" in values,
    )


def _device(name: str, found: _Found) -> RdmaDevice:
    values = found.rdma.get(name, {})
    speed = _FIGURE.match(values.get("current_link_speed", ""))
    ports = [adapter_port(name, number, one) for (device, number), one in found.ports.items() if device == name]
    return RdmaDevice(
        name=name,
        numa=natural(values.get("numa_node")),
        ports=tuple(sorted(ports, key=lambda port: port.port)),
        pcie_gt_per_s=float(speed[0]) if speed else None,
        pcie_lanes=natural(values.get("current_link_width")),
    )


def adapter_port(device: str, number: int, values: Mapping[str, str]) -> AdapterPort:
    """The port of a device from the texts of its files, by their names; empty or None for one that is not there."""
    state, physical = _STATE.fullmatch(values.get("state", "")), _STATE.fullmatch(values.get("phys_state", ""))
    rate = _FIGURE.match(values.get("rate", ""))
    return AdapterPort(
        device=device,
        port=number,
        state="" if state is None else _STATES.get(state[1].strip(), state[1].strip()),
        physical_state="" if physical is None else physical[1].strip(),
        rate_gbit_per_s=float(rate[0]) if rate else None,
        link_layer=values.get("link_layer", ""),
    )


def natural(text: str | None) -> int | None:
    """A number of the kernel's; None for -1, with which it says that there is none."""
    return int(text) if text is not None and _WHOLE.fullmatch(text) and int(text) >= 0 else None
