"""Checks of names, interfaces, link speeds and ports."""

import ipaddress
from collections.abc import Iterator

from hpcserve.doctor.evidence import Evidence, Interface, Wanted
from hpcserve.doctor.finding import Said, failure, fine, not_applicable, warning
from hpcserve.nouns import Network, NicKind

__all__ = ["WORKER_PORTS", "host_name", "link_speed", "networks", "ports"]

WORKER_PORTS = (15000, 32767)
"""Where agents reserve ports for workers and routers."""

_TOLERANCE = 0.95
_MBIT_PER_GB_PER_S = 8000.0


def host_name(seen: Evidence, _wanted: Wanted) -> Iterator[Said]:
    """What the host's own name resolves to."""
    if not seen.host_addresses:
        yield warning(
            f"{seen.hostname} does not resolve",
            why="engines that find one another by host name wait and fail; hpcserve itself goes by address",
            remedy="put the name and its address on the control network into DNS or /etc/hosts",
        )
        return
    looped = [address for address in seen.host_addresses if ipaddress.ip_address(address).is_loopback]
    if looped:
        yield warning(
            f"{seen.hostname} resolves to {', '.join(looped)}",
            why="an engine that tells its peers its own name sends them to themselves: handshakes hang; hpcserve"
            " gives the address on the data network instead",
            remedy="remove the name from the loopback lines of /etc/hosts",
        )
    else:
        yield fine("the host's name resolves to an address that others can reach")


def networks(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether the node has an address on the control and the data network, on an interface that is up."""
    if seen.interfaces_unseen:
        yield warning(
            f"the interfaces were not seen: {seen.interfaces_unseen}",
            why="whether the control and the data network are there is not known",
            remedy="see `ip -json address show` on that node",
        )
        return
    for called in ("control", "data"):
        network: Network = getattr(wanted.site.networks, called)
        carriers = _carriers(seen.interfaces, network)
        if not carriers:
            has = ", ".join(f"{one.name} {' '.join(one.addresses)}".strip() for one in seen.interfaces) or "nothing"
            yield failure(
                f"no address on the {called} network ({network.interface or network.subnet}); it has {has}",
                why="no agent can serve from this node",
                remedy=f"bring the interface up, or correct networks.{called} in the site file",
            )
        elif not any(one.up for one in carriers):
            yield failure(
                f"{carriers[0].name}, of the {called} network, is down",
                why="no agent can serve from this node",
                remedy="see its cable and `ip link`",
            )
        else:
            yield fine(f"the {called} network is there")


def _carriers(interfaces: tuple[Interface, ...], network: Network) -> list[Interface]:
    subnet = ipaddress.ip_network(network.subnet, strict=False) if network.subnet else None
    return [
        one
        for one in interfaces
        if (network.interface is None or one.name == network.interface)
        and any(subnet is None or ipaddress.ip_address(address) in subnet for address in one.addresses)
    ]


def link_speed(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether Ethernet links came up at the rate that the site file says."""
    by_name = {one.name: one for one in seen.interfaces}
    ours = [nic for nic in wanted.kind.nics if nic.kind in {NicKind.ETHERNET, NicKind.SLINGSHOT}]
    if not ours:
        yield not_applicable("no NIC that is an interface of the kernel")
    elif seen.interfaces_unseen:
        yield not_applicable("the interfaces were not seen")
        return
    for nic in ours:
        interface = by_name.get(nic.name)
        nominal = nic.rate.nominal_gb_per_s
        if interface is None:
            if nic.kind == NicKind.ETHERNET:
                yield failure(
                    f"no interface {nic.name}",
                    why="UCX ends, as the device that the plan gives it is not there",
                    remedy="correct `nics` of the node type, or bring it up",
                )
            continue
        speed = interface.speed_mbit_per_s
        if speed is None or nominal is None:
            yield not_applicable(f"the speed of {nic.name} is not known")
        elif speed < _TOLERANCE * nominal * _MBIT_PER_GB_PER_S:
            yield warning(
                f"{nic.name} runs at {speed / 1000:g} Gbit/s",
                why=f"{speed / _MBIT_PER_GB_PER_S:.3g} GB/s instead of {nominal:.3g} GB/s",
                remedy="see cable, transceiver and switch port; reseat or replace",
            )
        else:
            yield fine(f"{nic.name} is as fast as the site file says")


def ports(seen: Evidence, _wanted: Wanted) -> Iterator[Said]:
    """Whether workers get ports: free ones, that no outgoing connection takes."""
    first, last = WORKER_PORTS
    if seen.outgoing_ports is not None and seen.outgoing_ports[0] <= last and seen.outgoing_ports[1] >= first:
        yield warning(
            f"outgoing connections use ports {seen.outgoing_ports[0]} to {seen.outgoing_ports[1]}",
            why=f"they may take one that a worker was to listen on ({first} to {last}): it cannot start then",
            remedy="sysctl net.ipv4.ip_local_port_range='32768 60999' (the kernel's default)",
        )
    if seen.ports_tried and not seen.ports_free:
        yield failure(
            f"none of {seen.ports_tried} ports between {first} and {last} is free",
            why="no worker can listen",
            remedy="see `ss -ltn` on that node for what holds them",
        )
    elif seen.ports_free * 2 < seen.ports_tried:
        yield warning(
            f"only {seen.ports_free} of {seen.ports_tried} ports between {first} and {last} are free",
            why="a worker with many ranks needs contiguous ones",
            remedy="see `ss -ltn` on that node for what holds them",
        )
    elif not seen.ports_tried and seen.interfaces_unseen:
        yield not_applicable("no port was tried, as the addresses were not seen")
    else:
        yield fine("ports for workers are free")
