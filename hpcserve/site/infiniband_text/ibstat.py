"""`ibstat`: the adapters of one host and their ports, key and value on each line, told apart by indentation."""

import re
from dataclasses import dataclass, field

from hpcserve.site.infiniband_text.descriptions import short_guid
from hpcserve.site.infiniband_text.failures import find_failure, is_chatter
from hpcserve.site.infiniband_text.ports import AdapterPort, AdapterPorts
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.tool_text import Line, lines_of

__all__ = ["looks_like_ibstat", "parse_ibstat"]

_WANTED = "what `ibstat` prints"
_DEVICE = re.compile(r"CA '([^']{1,64})'")
_PORT = re.compile(r"Port (\d{1,3}):")
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9 ]{0,40}):\s{0,8}(.*)$")
_LOOKS = re.compile(r"^(?:[A-Za-z0-9.-]{1,253}: ?)?CA '[^'\n]{1,64}'", re.MULTILINE)
_RATE = re.compile(r"\d{1,5}(?:\.\d{1,3})?")
# Old versions print the short form.
_LAYERS = {"IB": "InfiniBand"}
_GUID = re.compile(r"0x[0-9a-fA-F]{1,16}")


@dataclass(slots=True)
class _Port:
    line: Line
    device: str
    number: int
    values: dict[str, str] = field(default_factory=dict)


def looks_like_ibstat(text: str) -> bool:
    """Whether a text holds the head of an adapter."""
    return _LOOKS.search(text) is not None


def parse_ibstat(text: str, source: str) -> AdapterPorts:
    """The ports in the order of the text.

    Raises InputError for lines of no known form, ports without a state, and text without any adapter.
    """
    mistakes = Mistakes(source)
    lines = lines_of(text, mistakes)
    ports: list[_Port] = []
    device: str | None = None
    about: dict[str, dict[str, str]] = {}
    for line in lines:
        content = line.text.strip()
        if content[0] in "#$" or is_chatter(content):
            continue
        if match := _DEVICE.fullmatch(content):
            device = match[1]
            if device in about:
                mistakes.add(
                    line.at(), f"adapter {device} a second time", "each adapter once", "give one host's output"
                )
            about[device] = {}
        elif device is not None and (match := _PORT.fullmatch(content)):
            ports.append(_Port(line, device, int(match[1])))
        elif device is not None and (match := _KEY.fullmatch(content)):
            values = ports[-1].values if ports and ports[-1].device == device else about[device]
            values[match[1]] = match[2].strip()
        else:
            mistakes.add(
                line.at(), f"a line of no form that is known: {content[:80]}", _WANTED, "give the output unchanged"
            )
    if not about and not mistakes.found and not find_failure(lines, mistakes, wanted=_WANTED):
        mistakes.add(None, "no adapter", _WANTED, "give the whole output, from a host with an InfiniBand adapter")
    read = [_read(port, about[port.device], mistakes) for port in ports]
    mistakes.check()
    return AdapterPorts(ports=tuple(read))


def _read(port: _Port, about: dict[str, str], mistakes: Mistakes) -> AdapterPort:
    values = port.values
    for key in ("State", "Physical state", "Link layer"):
        if not values.get(key):
            mistakes.add(
                port.line.at(), f"port {port.number} of {port.device} without `{key}`", _WANTED, "give all of it"
            )
    layer = values.get("Link layer", "")
    rate, guid = _RATE.fullmatch(values.get("Rate", "")), _GUID.fullmatch(values.get("Port GUID", ""))
    return AdapterPort(
        device=port.device,
        port=port.number,
        state=values.get("State", ""),
        physical_state=values.get("Physical state", ""),
        rate_gbit_per_s=float(rate[0]) if rate else None,
        link_layer=_LAYERS.get(layer, layer),
        device_type=about.get("CA type"),
        guid=short_guid(guid[0]) if guid else None,
    )
