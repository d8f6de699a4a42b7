"""Ports that a tool listed, one by one -> the net that they make."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hpcserve.site.infiniband_text.descriptions import host_and_device, is_in_switch
from hpcserve.site.infiniband_text.net import InfinibandNet, NetEnd, NetLink, NetNode
from hpcserve.site.infiniband_text.rates import LinkRate

__all__ = ["PortRow", "SeenEnd", "assemble"]

_LAST_ADAPTER_PORT = 2
"""No adapter has more ports; what is plugged in at a higher one is a switch."""

_MOST_TOLD = 20
"""Warnings or names of one sort that are told singly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEnd:
    """One end of a cable as the text names it."""

    name: str
    port: int
    guid: str | None = None
    lid: int | None = None
    """None for 0, which is no LID: no subnet manager has run."""
    is_switch: bool | None = None
    """None where the text does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRow:
    """One port that the text lists, and what it is linked to; no far end where it is down."""

    near: SeenEnd
    far: SeenEnd | None
    rate: LinkRate | None = None
    possible: LinkRate | None = None
    is_active: bool = True


@dataclass(slots=True)
class _Node:
    key: str
    name: str
    guid: str | None
    lid: int | None
    is_switch: bool | None
    ports: set[int] = field(default_factory=set)


class _Nodes:
    """Nodes by GUID; those without one by name, LID and what they say of the other end."""

    def __init__(self, rows: Iterable[PortRow], listed: Iterable[SeenEnd]) -> None:
        self.found: dict[str, _Node] = {}
        self._by_name: dict[str, list[str]] = {}
        self._rows: dict[NetEnd, PortRow] = {}
        self.ambiguous: dict[str, None] = {}
        for end in listed:
            self.of(end)
        for row in rows:
            self._rows[NetEnd(node=self.of(row.near).key, port=row.near.port)] = row

    def of(self, end: SeenEnd, *, seen_from: SeenEnd | None = None) -> _Node:
        """The node of an end; for one without GUID the other end helps to tell nodes of one name apart."""
        key = end.guid or self._resolved(end, seen_from) or f"{end.name} lid {end.lid or 0}"
        node = self.found.get(key)
        if node is None:
            node = self.found[key] = _Node(key, end.name, end.guid, end.lid, end.is_switch)
            self._by_name.setdefault(end.name, []).append(key)
        node.ports.add(end.port)
        node.name = node.name or end.name
        node.lid = node.lid or end.lid
        node.is_switch = end.is_switch if node.is_switch is None else node.is_switch
        return node

    def _resolved(self, end: SeenEnd, seen_from: SeenEnd | None) -> str | None:
        named = self._by_name.get(end.name, [])
        keys = [key for key in named if not end.lid or self.found[key].lid in {None, end.lid}]
        if len(keys) > 1 and seen_from is not None:
            keys = [key for key in keys if self._points_back(key, end.port, seen_from)]
            if len(keys) != 1:
                self.ambiguous[end.name] = None
        return keys[0] if len(keys) == 1 else None

    def _points_back(self, key: str, port: int, seen_from: SeenEnd) -> bool:
        row = self._rows.get(NetEnd(node=key, port=port))
        far = None if row is None else row.far
        return far is not None and (far.name, far.port) == (seen_from.name, seen_from.port)


def assemble(rows: Sequence[PortRow], *, listed: Sequence[SeenEnd] = (), warnings: Sequence[str] = ()) -> InfinibandNet:
    """The net of these ports; every cable once, though both of its ends may be listed.

    `listed` are nodes that the text names apart from their ports (their port is 0). What contradicts itself is told in
    the net's warnings.
    """
    nodes = _Nodes(rows, listed)
    links: dict[tuple[NetEnd, NetEnd], NetLink] = {}
    down: dict[NetEnd, None] = {}
    # Switches' own lines first, so that a switch's hosts stand in the order of its ports.
    for row in sorted(rows, key=lambda row: row.near.is_switch is False):
        near = NetEnd(node=nodes.of(row.near).key, port=row.near.port)
        if row.far is None:
            down[near] = None
            continue
        far = NetEnd(node=nodes.of(row.far, seen_from=row.near).key, port=row.far.port)
        ends = (near, far) if near < far else (far, near)
        link = NetLink(ends=ends, rate=row.rate, possible=row.possible, is_active=row.is_active)
        links[ends] = _agreed(links[ends], link) if ends in links else link
    told = [*warnings]
    if nodes.ambiguous:
        told.append(
            f"several nodes have one name, and which of them a port leads to is not said: {_some([*nodes.ambiguous])};"
            " `iblinkinfo -l` prints GUIDs"
        )
    frozen = {key: _frozen(node) for key, node in nodes.found.items()}
    net = InfinibandNet(nodes=frozen, links=tuple(links.values()), down=tuple(down), warnings=())
    return InfinibandNet(nodes=frozen, links=net.links, down=net.down, warnings=(*told, *_oddities(net)))


def _agreed(one: NetLink, other: NetLink) -> NetLink:
    """One cable of two views: the slower rate, where they differ."""
    rates = [rate for rate in (one.rate, other.rate) if rate is not None]
    return NetLink(
        ends=one.ends,
        rate=min(rates, key=lambda rate: rate.data_gbit_per_s) if rates else None,
        possible=one.possible or other.possible,
        is_active=one.is_active and other.is_active,
    )


def _frozen(node: _Node) -> NetNode:
    is_switch = node.is_switch
    if is_switch is None:
        # A GUID that the text gives without saying whose it is, is a switch's or one adapter port's.
        several = node.guid is not None and len(node.ports) > 1
        is_switch = several or max(node.ports) > _LAST_ADAPTER_PORT
    host, device = (None, None) if is_switch else host_and_device(node.name)
    return NetNode(
        key=node.key, guid=node.guid, name=node.name, is_switch=is_switch, host=host, device=device, lid=node.lid
    )


def _oddities(net: InfinibandNet) -> list[str]:
    told = []
    cables: dict[NetEnd, int] = {}
    for link in net.links:
        for end in link.ends:
            cables[end] = cables.get(end, 0) + 1
    told += [f"{net.end_label(end)}: {count} cables in one port" for end, count in cables.items() if count > 1]
    if asleep := sum(not link.is_active for link in net.links):
        told.append(f"{asleep} links are up and not active: no subnet manager has brought them up")
    leafless = [host for host in net.hosts if host not in net.leaves_of]
    if leafless:
        told.append(f"hosts that are plugged into no switch: {_some(leafless)}")
    nameless = [
        node.name or node.key
        for node in net.nodes.values()
        if not node.is_switch and node.host is None and not is_in_switch(node.name)
    ]
    if nameless:
        told.append(f"adapters whose description names no host: {_some(nameless)}")
    degraded = [
        f"degraded: {net.link_label(link)} runs at {link.rate} and could at {link.possible}" for link in net.degraded
    ]
    slower = [
        f"slow: {net.link_label(link)} runs at {link.rate}, most links beside it at {usual}"
        for link, usual in net.slower
        if link.possible is None
    ]
    return [*told, *_first(degraded, "degraded links"), *_first(slower, "slow links")]


def _first(told: Sequence[str], what: str) -> list[str]:
    if len(told) <= _MOST_TOLD:
        return [*told]
    return [*told[:_MOST_TOLD], f"and {len(told) - _MOST_TOLD} more {what}"]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_TOLD} more" if len(names) > _MOST_TOLD else ""
    return ", ".join(names[:_MOST_TOLD]) + more
