"""Mistakes in a site's YAML that its schema cannot see, except those of its switches."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from hpcserve.nouns import MOST_GPUS_PER_NODE
from hpcserve.site.check_switches import check_switches
from hpcserve.site.reading import at, first_of, hosts_at, items_of, nearest, number_at, pairs_of, repeated, text_at
from hpcserve.wire import Complaint

__all__ = ["check_site"]


def check_site(raw: Mapping[str, Any]) -> list[Complaint]:
    """Every mistake of a site as plain data: names that do not exist, double membership, indexes out of range."""
    complaints: list[Complaint] = []
    for name, node_type in pairs_of(raw, "node_types"):
        complaints += _check_gpus(name, node_type)
    hosts = _check_nodes(raw, complaints)
    complaints += check_switches(raw, hosts)
    _check_partitions(raw, hosts, complaints)
    complaints += _check_networks(raw)
    complaints += _check_transport(raw)
    complaints += _check_runtimes(raw)
    complaints += _check_paths(raw)
    return complaints


def _check_gpus(name: str, node_type: Any) -> Iterator[Complaint]:
    """NICs and NVLink islands of one node type against its GPU count."""
    here = ("node_types", name)
    count = number_at(node_type, "gpu", "count")
    near: set[int] = set()
    for list_name in ("nics", "nvlink"):
        islands: dict[int, int] = {}
        for index, item in items_of(node_type, list_name):
            for position, gpu in items_of(item, "gpus"):
                if not isinstance(gpu, int) or isinstance(gpu, bool):
                    continue
                path = (*here, list_name, index, "gpus", position)
                if count is not None and not 0 <= gpu < count:
                    yield Complaint(
                        path=path,
                        found=f"GPU {gpu}, and `{name}` has {count} GPUs",
                        wanted=f"an index from 0 to {count - 1} was wanted",
                        remedy="correct the index or `gpu.count`",
                    )
                if list_name == "nics":
                    near.add(gpu)
                elif gpu in islands:
                    yield Complaint(
                        path=path,
                        found=f"GPU {gpu} a second time, it is already in NVLink island {islands[gpu]}",
                        wanted="each GPU in at most one NVLink island was wanted",
                        remedy="remove it from one of the two",
                    )
                else:
                    islands[gpu] = index
    for nic in repeated(text_at(item, "name") or f"nameless {index}" for index, item in items_of(node_type, "nics")):
        yield Complaint(
            path=(*here, "nics"),
            found=f"two NICs named `{nic}`",
            wanted="each NIC port once was wanted",
            remedy="write one entry with the GPUs of both",
            at_key=True,
        )
    missing = sorted(set(range(count or 0)) - near) if (count or 0) <= MOST_GPUS_PER_NODE else []
    if missing and items_of(node_type, "nics"):
        yield Complaint(
            path=(*here, "nics"),
            found=f"GPU {', '.join(map(str, missing))} of `{name}` near no NIC",
            wanted="every GPU near a NIC was wanted",
            remedy="add it to the `gpus` of the NIC that it is nearest to",
            at_key=True,
        )


def _check_nodes(raw: Mapping[str, Any], complaints: list[Complaint]) -> tuple[str, ...]:
    """All host names in the site's order; complains of unknown types and of hosts that come twice."""
    types = [name for name, _ in pairs_of(raw, "node_types")]
    hosts: dict[str, int] = {}
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
        hosts.update({name: index for name in names if name not in hosts})
    return tuple(hosts)


def _check_partitions(raw: Mapping[str, Any], hosts: tuple[str, ...], complaints: list[Complaint]) -> None:
    known = frozenset(hosts)
    for name, _ in pairs_of(raw, "partitions"):
        path = ("partitions", name, "hosts")
        unknown = [host for host in hosts_at(raw, path, complaints) if host not in known]
        if unknown:
            complaints.append(
                Complaint(
                    path=path,
                    found=f"unknown node {first_of(unknown)}",
                    wanted="nodes of this site were wanted",
                    remedy=nearest(unknown[0], hosts, none="add them under `nodes`"),
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


def _check_transport(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    if at(raw, "transport", "ucx", "UCX_NET_DEVICES") is not None:
        yield Complaint(
            path=("transport", "ucx", "UCX_NET_DEVICES"),
            found="`UCX_NET_DEVICES`",
            wanted="it follows from the NICs that each worker is placed on",
            remedy="remove it, and list under `nics` only ports that may carry KV",
            at_key=True,
        )


def _check_runtimes(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    runtimes = at(raw, "runtimes")
    if not isinstance(runtimes, dict):
        return
    if "hpcserve" not in runtimes:
        yield Complaint(
            path=("runtimes",),
            found="`runtimes` has no `hpcserve`",
            wanted="how hpcserve's own Python is entered was wanted",
            remedy="add `hpcserve: {kind: none}` if the Python that submits is seen by every node",
            at_key=True,
        )
    for name, runtime in runtimes.items():
        kind, path = text_at(runtime, "kind"), text_at(runtime, "path")
        if kind in ("venv", "apptainer") and path is None:
            yield Complaint(
                path=("runtimes", name),
                found=f"runtime `{name}` of kind {kind} has no `path`",
                wanted=f"the path of the {'environment' if kind == 'venv' else 'image'} was wanted",
                remedy="add `path:`",
                at_key=True,
            )
        if kind == "modules" and not items_of(runtime, "modules"):
            yield Complaint(
                path=("runtimes", name),
                found=f"runtime `{name}` of kind modules names no module",
                wanted="at least one module was wanted",
                remedy="add `modules: [NAME]`",
                at_key=True,
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
