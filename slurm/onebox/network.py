"""Builds and changes the cluster's network with `ip` and `tc`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial

from slurm.onebox import namespaces, wires
from slurm.onebox.layout import FABRIC, Cluster, End, Link, parse_rate
from slurm.onebox.processes import run


def _batch(cluster: Cluster, namespace: str, tool: str, lines: str, *options: str) -> str:
    inside = partial(namespaces.enter_network, cluster, namespace)
    return run([tool, *options, "-batch", "-"], text_in=lines, inside=inside)


def build(cluster: Cluster) -> None:
    """Make all namespaces, bridges, cables, addresses and rates."""
    for namespace in cluster.namespaces:
        namespaces.make(cluster, namespace)
    _batch(cluster, FABRIC, "ip", wires.fabric_links(cluster))
    _batch(cluster, FABRIC, "tc", wires.shaping(cluster, FABRIC))
    for host in cluster.hosts:
        _batch(cluster, host.name, "ip", wires.host_addresses(host))
        if shaping := wires.shaping(cluster, host.name):
            _batch(cluster, host.name, "tc", shaping)


def change_rate(cluster: Cluster, link: Link, rate_bit_per_s: int) -> None:
    """Shape both directions of a link at a new rate, while it is in use."""
    for end in (link.near, link.far):
        _batch(cluster, end.namespace, "tc", wires.reshaping(end, rate_bit_per_s))


def _set(cluster: Cluster, end: End, state: str) -> None:
    _batch(cluster, end.namespace, "ip", f"link set {end.device} {state}\n")


def cut(cluster: Cluster, link: Link) -> None:
    """Pull the cable: the near end keeps its address and loses its carrier."""
    _set(cluster, link.far, "down")


def mend(cluster: Cluster, link: Link) -> None:
    """Put the cable back."""
    _set(cluster, link.far, "up")


@dataclass(frozen=True, kw_only=True)
class LinkState:
    """A link as the kernel has it now."""

    name: str
    rate_bit_per_s: int
    up: bool


def link_states(cluster: Cluster) -> tuple[LinkState, ...]:
    """Rate and carrier of every link now, in the order of `cluster.links`."""
    devices = {
        device["ifname"]: "UP" in device["flags"]
        for device in json.loads(_batch(cluster, FABRIC, "ip", "link show\n", "-json"))
    }
    # `tc -json` of iproute2 6.1 prints HTB classes as plain text all the same; one line for each device.
    shown = _batch(cluster, FABRIC, "tc", wires.fabric_classes(cluster)).splitlines()
    return tuple(
        LinkState(name=link.name, rate_bit_per_s=_rate_in(line), up=devices[link.far.device])
        for link, line in zip(cluster.links, shown, strict=True)
    )


def _rate_in(shown: str) -> int:
    words = shown.split()
    return parse_rate(words[words.index("rate") + 1])
