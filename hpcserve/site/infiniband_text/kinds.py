"""The InfiniBand tools' texts as kinds, and what is understood of them as plain data."""

from collections.abc import Mapping
from typing import Any

from hpcserve.site.infiniband_text.failures import looks_like_failure, parse_failure
from hpcserve.site.infiniband_text.iblinkinfo import looks_like_iblinkinfo, parse_iblinkinfo
from hpcserve.site.infiniband_text.ibnetdiscover import looks_like_ibnetdiscover, parse_ibnetdiscover
from hpcserve.site.infiniband_text.ibstat import looks_like_ibstat, parse_ibstat
from hpcserve.site.infiniband_text.net import InfinibandNet, NetLink
from hpcserve.site.infiniband_text.port_list import looks_like_port_list, parse_port_list
from hpcserve.site.infiniband_text.ports import AdapterPort, AdapterPorts
from hpcserve.site.infiniband_text.rates import LinkRate
from hpcserve.site.kind import Kind

__all__ = ["KINDS", "net_understood", "ports_understood"]


def net_understood(net: InfinibandNet) -> Mapping[str, Any]:
    """A net as plain data.

    `leaf_of` has a list where a host is plugged into several leaves; `hosts_on_switch` and `leaf_guid` stand only where
    there is one leaf. `degraded` names the host of a link that could be faster, or both ends between switches. Rates
    are one-way Gbit/s of data.
    """
    told: dict[str, Any] = {
        "leaves": {leaf: list(hosts) for leaf, hosts in net.leaves.items()},
        "leaf_of": {host: leaves[0] if len(leaves) == 1 else list(leaves) for host, leaves in net.leaves_of.items()},
        "spines": list(net.spines),
        "hosts": list(net.hosts),
    }
    if len(net.leaves) == 1:
        ((leaf, hosts),) = net.leaves.items()
        told["hosts_on_switch"] = list(hosts)
        told["leaf_guid"] = next(net.nodes[key].guid for key, label in net.labels.items() if label == leaf)
    return told | {
        "uplinks": _uplinks(net),
        "degraded": list(dict.fromkeys(_whose(net, link) for link in net.degraded)),
        "degraded_links": [_link(net, link, link.possible) for link in net.degraded],
        "slower_links": [_link(net, link, usual) for link, usual in net.slower],
        "down_ports": len(net.down),
        "down": [net.end_label(end) for end in net.down],
        "link_rates": _rates(net),
        "warnings": list(net.warnings),
    }


def _whose(net: InfinibandNet, link: NetLink) -> str:
    hosts = [net.nodes[end.node].host for end in link.ends]
    host = next((host for host in hosts if host is not None), None)
    return net.link_label(link) if host is None else host


def _link(net: InfinibandNet, link: NetLink, other: LinkRate | None) -> Mapping[str, Any]:
    return {
        "ends": [net.end_label(end) for end in link.ends],
        "rate": None if link.rate is None else str(link.rate),
        "gbit_per_s": None if link.rate is None else round(link.rate.data_gbit_per_s, 3),
        "expected": None if other is None else str(other),
        "expected_gbit_per_s": None if other is None else round(other.data_gbit_per_s, 3),
    }


def _uplinks(net: InfinibandNet) -> list[Mapping[str, Any]]:
    """Links between switches, parallel ones together."""
    groups: dict[tuple[str, str], list[NetLink]] = {}
    for link in net.links:
        one, two = (net.labels.get(end.node) for end in link.ends)
        if one is not None and two is not None:
            groups.setdefault((one, two), []).append(link)
    return [
        {
            "switches": list(pair),
            "links": len(links),
            "gbit_per_s": None
            if any(link.rate is None for link in links)
            else round(sum(link.rate.data_gbit_per_s for link in links if link.rate is not None), 3),
        }
        for pair, links in groups.items()
    ]


def _rates(net: InfinibandNet) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for link in net.links:
        name = "unknown" if link.rate is None else str(link.rate)
        counts[name] = counts.get(name, 0) + 1
    return counts


def ports_understood(found: AdapterPorts) -> Mapping[str, Any]:
    """The ports of one host as plain data; rates in Gbit/s as the tool prints them."""

    def labels(ports: tuple[AdapterPort, ...]) -> list[str]:
        return [found.label(port) for port in ports]

    return {
        "ib_active": labels(found.infiniband_up),
        "roce_active": labels(found.ethernet_up),
        "unusable": labels(found.unusable),
        "ports": [
            {
                "name": port.ucx_name,
                "state": port.state,
                "physical_state": port.physical_state,
                "gbit_per_s": port.rate_gbit_per_s,
                "link_layer": port.link_layer,
            }
            for port in found.ports
        ],
        "warnings": list(found.warnings),
    }


KINDS: tuple[Kind[Any], ...] = (
    Kind(
        name="ibnetdiscover",
        about="`ibnetdiscover`: every switch and adapter of an InfiniBand fabric with its cables",
        looks_like=looks_like_ibnetdiscover,
        parse=parse_ibnetdiscover,
        understood=net_understood,
    ),
    Kind(
        name="ibnetdiscover-p",
        about="`ibnetdiscover -p`: the same, one line for each port",
        looks_like=looks_like_port_list,
        parse=parse_port_list,
        understood=net_understood,
    ),
    Kind(
        name="iblinkinfo",
        about="`iblinkinfo` or `iblinkinfo -l`: every port with its state, its rate and what it could do",
        looks_like=looks_like_iblinkinfo,
        parse=parse_iblinkinfo,
        understood=net_understood,
    ),
    Kind(
        name="ibstat",
        about="`ibstat`: the InfiniBand and RoCE ports of one host",
        looks_like=looks_like_ibstat,
        parse=parse_ibstat,
        understood=ports_understood,
    ),
    Kind(
        name="infiniband-failure",
        about="an InfiniBand tool's complaint instead of an answer; told with what to do",
        looks_like=looks_like_failure,
        parse=parse_failure,
        understood=lambda _: {},
    ),
)
"""In the order in which a text is tried."""
