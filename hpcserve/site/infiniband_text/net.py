"""What discovery tools say of an InfiniBand net: its switches, adapters and cables."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from hpcserve.site.infiniband_text.rates import LinkRate

__all__ = ["InfinibandNet", "NetEnd", "NetLink", "NetNode"]

_ENOUGH_PEERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NetNode:
    """A switch, or an adapter of a host (one port of it, where the tool tells ports by their own GUID)."""

    key: str
    """What links refer to: the GUID, or made of name and LID where the text has no GUID."""
    guid: str | None
    """16 hexadecimal digits without `0x`."""
    name: str
    """The node description, without the blanks around it."""
    is_switch: bool
    host: str | None
    """The host whose adapter it is; None for a switch, and where the description names no host."""
    device: str | None
    """The adapter's name on its host, `mlx5_0` or `HCA-1`; None where the description names none."""
    lid: int | None


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NetEnd:
    """One port of a node."""

    node: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetLink:
    """One cable between two ports that are up."""

    ends: tuple[NetEnd, NetEnd]
    """In order, so that a cable is the same whichever end was read first."""
    rate: LinkRate | None
    """None where the tool did not print one that is known."""
    possible: LinkRate | None
    """What both ends could do, where the tool says that it is more than `rate`."""
    is_active: bool
    """False where no subnet manager has brought the link up."""


@dataclass(frozen=True, kw_only=True)
class InfinibandNet:
    """A net as one tool printed it. Nodes, links and ports stand in the order of the text."""

    nodes: Mapping[str, NetNode]
    links: tuple[NetLink, ...]
    down: tuple[NetEnd, ...]
    """Ports that the tool lists and that have no link."""
    warnings: tuple[str, ...]

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """For each switch's key its name, with the GUID where several have that name or it is empty."""
        switches = [node for node in self.nodes.values() if node.is_switch]
        names = Counter(node.name for node in switches)
        return {
            node.key: node.name if node.name and names[node.name] == 1 else f"{node.name} {node.guid}".strip()
            for node in switches
        }

    def end_label(self, end: NetEnd) -> str:
        """A port in words: `leaf1 port 5`, or the adapter's description."""
        label = self.labels.get(end.node)
        return self.nodes[end.node].name or end.node if label is None else f"{label} port {end.port}"

    def link_label(self, link: NetLink) -> str:
        """A cable in words, by both of its ports."""
        return " - ".join(self.end_label(end) for end in link.ends)

    def host_links(self) -> Iterator[tuple[NetLink, NetNode, NetNode, int]]:
        """Links between a switch and a host: the link, the switch, the adapter, the switch's port."""
        for link in self.links:
            for near, far in (link.ends, link.ends[::-1]):
                switch, adapter = self.nodes[near.node], self.nodes[far.node]
                if switch.is_switch and adapter.host is not None:
                    yield link, switch, adapter, near.port

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """Names of all hosts, each once."""
        return tuple(dict.fromkeys(node.host for node in self.nodes.values() if node.host is not None))

    @cached_property
    def leaves(self) -> Mapping[str, tuple[str, ...]]:
        """For each switch with hosts, by label, its hosts."""
        hosts: dict[str, dict[str, None]] = {}
        for _, switch, adapter, _ in self.host_links():
            if adapter.host is not None:
                hosts.setdefault(self.labels[switch.key], {})[adapter.host] = None
        return {label: tuple(hosts[label]) for label in self.labels.values() if label in hosts}

    @cached_property
    def leaves_of(self) -> Mapping[str, tuple[str, ...]]:
        """For each host that is plugged in, the labels of its leaves: one, or one for each rail."""
        found: dict[str, list[str]] = {}
        for leaf, hosts in self.leaves.items():
            for host in hosts:
                found.setdefault(host, []).append(leaf)
        return {host: tuple(found[host]) for host in self.hosts if host in found}

    @cached_property
    def spines(self) -> tuple[str, ...]:
        """Labels of the switches without hosts."""
        return tuple(label for label in self.labels.values() if label not in self.leaves)

    @cached_property
    def degraded(self) -> tuple[NetLink, ...]:
        """Links that the tool says could be wider or faster."""
        return tuple(link for link in self.links if link.possible is not None)

    @cached_property
    def slower(self) -> tuple[tuple[NetLink, LinkRate], ...]:
        """Links that run slower than most others of the same switch and kind, and what those run at.

        Kinds are links to hosts and links to switches. At least three others and more than half must agree.
        """
        found: dict[NetLink, LinkRate] = {}
        groups: dict[tuple[str, bool], list[NetLink]] = {}
        for link in self.links:
            for near, far in (link.ends, link.ends[::-1]):
                if self.nodes[near.node].is_switch:
                    groups.setdefault((near.node, self.nodes[far.node].is_switch), []).append(link)
        for links in groups.values():
            rates = Counter(link.rate for link in links if link.rate is not None)
            if not rates:
                continue
            usual, count = rates.most_common(1)[0]
            if count < _ENOUGH_PEERS or 2 * count <= len(links):
                continue
            for link in links:
                if link.rate is not None and link.rate.data_gbit_per_s < usual.data_gbit_per_s:
                    found[link] = usual
        return tuple(found.items())
