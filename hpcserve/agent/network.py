"""Which of a node's addresses is on a network of the site."""

import ipaddress
import json
from collections.abc import Sequence

from hpcserve.errors import ServiceError
from hpcserve.nouns import Network, Noun

__all__ = ["Interface", "address_on", "host_in_url", "interfaces_in"]


class Interface(Noun):
    """One interface and its addresses, in the kernel's order."""

    name: str
    addresses: tuple[str, ...]


def interfaces_in(ip_output: str) -> tuple[Interface, ...]:
    """What `ip -json address show` printed: interfaces and their addresses, but for link-local ones."""
    found = []
    for entry in json.loads(ip_output):
        addresses = tuple(
            str(info["local"])
            for info in entry.get("addr_info", ())
            if info.get("scope") != "link" and "local" in info and not info.get("tentative")
        )
        # `ip` prints names of virtual interfaces as `eth0@if12` in text, but not in JSON
        found.append(Interface(name=str(entry["ifname"]), addresses=addresses))
    return tuple(found)


def address_on(network: Network, interfaces: Sequence[Interface], *, called: str) -> str:
    """The node's address on `network`: of that interface, in that subnet, or both; IPv4 before IPv6.

    Raises ServiceError that says what the node has. `called` names the network in it.
    """
    subnet = ipaddress.ip_network(network.subnet, strict=False) if network.subnet else None
    fitting = [
        ipaddress.ip_address(address)
        for interface in interfaces
        if network.interface is None or interface.name == network.interface
        for address in interface.addresses
        if subnet is None or ipaddress.ip_address(address) in subnet
    ]
    if not fitting:
        wanted = " and ".join(
            part
            for part in (
                f"interface {network.interface}" if network.interface else "",
                f"subnet {network.subnet}" if network.subnet else "",
            )
            if part
        )
        has = ", ".join(f"{each.name} {' '.join(each.addresses) or '(no address)'}" for each in interfaces) or "nothing"
        raise ServiceError(
            f"this node has no address on the {called} network ({wanted}); it has {has}",
            remedy=f"correct networks.{called} in the site file, or bring the interface up",
        )
    return str(min(fitting, key=lambda address: address.version))


def host_in_url(address: str) -> str:
    """An address as it stands in a URL: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address
