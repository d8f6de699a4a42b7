"""Mistakes in a site's YAML that its schema cannot see: names that do not exist, what is there twice or missing."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from hpcserve.site.check_groups import check_blocks, check_domains
from hpcserve.site.check_node_types import check_node_types
from hpcserve.site.check_rates import check_rates
from hpcserve.site.check_runtimes import check_runtimes, check_transport
from hpcserve.site.check_switches import check_switches
from hpcserve.site.reading import at, first_of, hosts_at, items_of, nearest, pairs_of, repeated, text_at
from hpcserve.wire import Complaint

__all__ = ["check_site"]


def check_site(raw: Mapping[str, Any]) -> list[Complaint]:
    """Every mistake of a site as plain data: names that do not exist, double membership, indexes out of range."""
    complaints = [*check_node_types(raw), *check_rates(raw)]
    type_of = _check_nodes(raw, complaints)
    complaints += check_switches(raw, type_of)
    complaints += check_domains(raw, type_of)
    complaints += check_blocks(raw, type_of)
    _check_partitions(raw, type_of, complaints)
    complaints += _check_networks(raw)
    complaints += check_transport(raw)
    complaints += check_runtimes(raw)
    complaints += _check_paths(raw)
    return complaints


def _check_nodes(raw: Mapping[str, Any], complaints: list[Complaint]) -> dict[str, str]:
    """The type of each host in the site's order; complains of unknown types and of hosts that come twice."""
    types = [name for name, _ in pairs_of(raw, "node_types")]
    hosts: dict[str, str] = {}
    for index, group in items_of(raw, "nodes"):
        type_name = text_at(group, "type")
        if type_name is not None and type_name not in types:
            complaints.append(
                Complaint(
                    path=("nodes", index, "type"),
                    found=f"unknown node type `{type_name}`",
                    wanted="a key of `node_types` was wanted",
                    remedy=nearest(type_name, types, none="describe it under `node_types`"),
                )
            )
        names = hosts_at(raw, ("nodes", index, "hosts"), complaints)
        doubled = sorted({*repeated(names), *(name for name in names if name in hosts)})
        if doubled:
            complaints.append(
                Complaint(
                    path=("nodes", index, "hosts"),
                    found=f"node {first_of(doubled)} a second time",
                    wanted="each node once was wanted",
                    remedy="remove it from one of the groups",
                )
            )
        hosts.update({name: type_name or "" for name in names if name not in hosts})
    return hosts


def _check_partitions(raw: Mapping[str, Any], known: Mapping[str, str], complaints: list[Complaint]) -> None:
    for name, _ in pairs_of(raw, "partitions"):
        path = ("partitions", name, "hosts")
        hosts = hosts_at(raw, path, complaints)
        unknown = [host for host in hosts if host not in known]
        if unknown:
            complaints.append(
                Complaint(
                    path=path,
                    found=f"unknown node {first_of(unknown)}",
                    wanted="nodes of this site were wanted",
                    remedy=nearest(unknown[0], known, none="add them under `nodes`"),
                )
            )
        doubled = sorted(repeated(hosts))
        if doubled:
            complaints.append(
                Complaint(
                    path=path,
                    found=f"node {first_of(doubled)} a second time",
                    wanted="each node once was wanted",
                    remedy="correct the host list",
                )
            )


def _check_networks(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    for name in ("control", "data"):
        network = at(raw, "networks", name)
        if not isinstance(network, dict):
            continue
        if network.get("interface") is None and network.get("subnet") is None:
            yield Complaint(
                path=("networks", name),
                found=f"the {name} network has neither `interface` nor `subnet`",
                wanted="one of them was wanted",
                remedy="add `interface:` (as in `ip address`) or `subnet:` (as in 10.1.0.0/16)",
                at_key=True,
            )
        subnet = text_at(network, "subnet")
        if subnet is not None:
            try:
                ipaddress.ip_network(subnet)
            except ValueError as error:
                yield Complaint(
                    path=("networks", name, "subnet"),
                    found=str(error),
                    wanted="a subnet such as 10.1.0.0/16 was wanted",
                    remedy="write the network's address and prefix length",
                )


def _check_paths(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    for name, _ in pairs_of(raw, "paths"):
        path = text_at(raw, "paths", name)
        if path is not None and path[:1] not in ("/", "~"):
            yield Complaint(
                path=("paths", name),
                found=f"`{path}`, which would depend on the folder that a command is started in",
                wanted="an absolute path was wanted, or one under `~`",
                remedy="begin it with / or ~",
            )
