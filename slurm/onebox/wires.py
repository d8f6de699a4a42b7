"""The network as lines for `ip -batch` and `tc -batch`. Pure: a `Cluster` in, texts out.

The control network is one bridge, `control`, with every host's `ctl0`, unshaped. On the data network
a node's `data0` goes at the node's rate to the bridge of its leaf, and that at the uplink's rate to
the bridge `spine`, where the controller's `data0` is, unshaped.
"""

from __future__ import annotations

from slurm.onebox.layout import CONTROLLER, Cluster, End, Link, Node

# Enough for one full-sized segmentation-offload packet (64 KiB): less would hold TCP below the rate.
BURST_BYTES = 65_536
# How much HTB sends at a turn; only keeps `tc` from warning about the derived value at high rates.
QUANTUM_BYTES = 60_000


def _bring_up(device: str) -> list[str]:
    # No link-local IPv6 address: the networks have exactly the addresses of the layout.
    return [f"link set {device} addrgenmode none", f"link set {device} up"]


def _plug(cluster: Cluster, host: Node, device: str, socket: str, bridge: str) -> list[str]:
    namespace = cluster.namespace_file(host.name)
    return [
        f"link add {socket} type veth peer name {device} netns {namespace}",
        f"link set {socket} master {bridge}",
        *_bring_up(socket),
    ]


def fabric_links(cluster: Cluster) -> str:
    """`ip` lines for the switches' namespace: bridges, and a cable to each host."""
    lines = ["link set lo up"]
    for bridge in ("control", "spine", *cluster.leaves):
        lines += [f"link add {bridge} type bridge mcast_snooping 0", *_bring_up(bridge)]
    for leaf in cluster.leaves:
        uplink = cluster.link(leaf)
        lines += [
            f"link add {uplink.near.device} type veth peer name {uplink.far.device}",
            f"link set {uplink.near.device} master {leaf}",
            f"link set {uplink.far.device} master spine",
            *_bring_up(uplink.near.device),
            *_bring_up(uplink.far.device),
        ]
    lines += _plug(cluster, cluster.controller, "ctl0", f"c-{CONTROLLER}", "control")
    lines += _plug(cluster, cluster.controller, "data0", f"d-{CONTROLLER}", "spine")
    for node in cluster.nodes:
        lines += _plug(cluster, node, "ctl0", f"c-{node.name}", "control")
        lines += _plug(cluster, node, "data0", cluster.link(node.name).far.device, node.leaf)
    return "\n".join(lines) + "\n"


def host_addresses(host: Node) -> str:
    """`ip` lines for one host's namespace. There is no default route: nothing leaves the cluster."""
    lines = ["link set lo up"]
    for device, address in (("ctl0", host.control_address), ("data0", host.data_address)):
        lines += [f"address add {address}/24 dev {device}", *_bring_up(device)]
    return "\n".join(lines) + "\n"


def _class(verb: str, device: str, rate_bit_per_s: int) -> str:
    return (
        f"class {verb} dev {device} parent 1: classid 1:10 htb"
        f" rate {rate_bit_per_s}bit ceil {rate_bit_per_s}bit"
        f" burst {BURST_BYTES} cburst {BURST_BYTES} quantum {QUANTUM_BYTES}"
    )


def _ends_in(cluster: Cluster, namespace: str) -> list[tuple[End, Link]]:
    return [(end, link) for link in cluster.links for end in (link.near, link.far) if end.namespace == namespace]


def shaping(cluster: Cluster, namespace: str) -> str:
    """`tc` lines that shape what leaves each link end of this namespace."""
    lines = []
    for end, link in _ends_in(cluster, namespace):
        lines.append(f"qdisc add dev {end.device} root handle 1: htb default 10")
        lines.append(_class("add", end.device, link.rate_bit_per_s))
    return "\n".join(lines) + "\n" if lines else ""


def reshaping(end: End, rate_bit_per_s: int) -> str:
    """The `tc` line that changes one link end's rate while it is in use."""
    return _class("change", end.device, rate_bit_per_s) + "\n"


def fabric_classes(cluster: Cluster) -> str:
    """`tc` lines that show the far end of each link, in the order of `cluster.links`."""
    return "".join(f"class show dev {link.far.device}\n" for link in cluster.links)
