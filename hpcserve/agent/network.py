"""Which of a node's addresses is on a network of the site."""

import ipaddress
from collections.abc import Sequence

from hpcserve.errors import ServiceError
from hpcserve.nouns import Network
from hpcserve.site.host_text import Interface

__all__ = ["address_on", "host_in_url"]


def address_on(network: Network, interfaces: Sequence[Interface], *, called: str) -> str:
    """The node's address on `network`: of that interface, in that subnet, or both; IPv4 before IPv6.

    Raises ServiceError that says what the node has. `called` names the network in it.
    """
    subnet = ipaddress.ip_network(network.subnet, strict=False) if network.subnet else None
    fitting = [
        ipaddress.ip_address(address)
        for interface in interfaces
        if network.interface is None or interface.name == network.interface
        for address in interface.usable_addresses
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
        has = ", ".join(f"{one.name} {' '.join(one.usable_addresses) or '(no address)'}" for one in interfaces)
        raise ServiceError(
            f"this node has no address on the {called} network ({wanted}); it has {has or 'nothing'}",
            remedy=f"correct networks.{called} in the site file, or bring the interface up",
        )
    return str(min(fitting, key=lambda address: address.version))


def host_in_url(address: str) -> str:
    """An address as it stands in a URL: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address
