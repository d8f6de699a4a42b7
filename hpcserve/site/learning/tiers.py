"""An InfiniBand net, in which a leaf is cabled to many spines, as the tree of switches that a site is written in."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from hpcserve.site.infiniband_text import InfinibandNet, LinkRate, NetNode
from hpcserve.site.learning.facts import SwitchFacts, UplinkFacts

__all__ = ["Tiers", "natural", "tiers_of"]

# What NVIDIA's subnet manager and switches write into a node description: `MF0;NAME:MODEL/UNIT`.
_DESCRIBED = re.compile(r"MF0;([^:;]+):.*")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiers:
    """The tree, leaves first, and what of the net does not fit into one, in words."""

    switches: tuple[SwitchFacts, ...]
    notes: tuple[str, ...]
    rail_of_port: Mapping[str, int]
    """In a net of rails the rail of each adapter port, by its GUID and by `HOST DEVICE`."""


@dataclass(slots=True, kw_only=True)
class _Group:
    """Switches of one tier that reach the same switches below: one switch of the tree."""

    name: str
    members: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    below: list["_Group"] = field(default_factory=list)
    above: "_Group | None" = None
    rail: int | None = None


def tiers_of(net: InfinibandNet, *, hosts: Collection[str] | None, source: str) -> Tiers:
    """The tree of a net, over `hosts` only where they are given: login and storage nodes are no leaf's.

    Switches that have a switch below in common become one, as nothing says which of them a flow takes; the rate
    between two tiers is that of all cables together. `source` is the tool that told the net.
    """
    labels = net.labels
    wanted = net.hosts if hosts is None else hosts
    leaves = {
        label: tuple(host for host in members if host in wanted)
        for label, members in net.leaves.items()
        if any(host in wanted for host in members)
    }
    cables = _cables(net)
    names = _names(labels.values())
    rails, rail_of_port, notes = _rails(net, leaves)
    tier = [_Group(name=names[one], members=(one,), hosts=leaves[one], rail=rails.get(one)) for one in leaves]
    groups = list(tier)
    placed = set(leaves)
    notes += [
        f"a cable between the leaves {names[one]} and {names[two]} has no place in a tree; it is left out"
        for one, two in cables
        if one in leaves and two in leaves
    ]
    level = 1
    while True:
        uppers = _tier_above(tier, cables, placed, names, level)
        if not uppers:
            break
        placed.update(member for group in uppers for member in group.members)
        groups += uppers
        tier = uppers
        level += 1
    return Tiers(
        switches=tuple(_fact(group, cables, source) for group in groups),
        notes=tuple(notes),
        rail_of_port=rail_of_port,
    )


def natural(text: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts names as people count: leaf2 before leaf10."""
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", text) if part)


def _cables(net: InfinibandNet) -> Mapping[tuple[str, str], tuple[LinkRate | None, ...]]:
    """For each two switches with cables between them, in order, the rates of these."""
    found: dict[tuple[str, str], tuple[LinkRate | None, ...]] = {}
    for link in net.links:
        near, far = (net.nodes[end.node] for end in link.ends)
        if near.is_switch and far.is_switch and link.is_active and near.key != far.key:
            one, two = sorted((net.labels[near.key], net.labels[far.key]))
            found[one, two] = (*found.get((one, two), ()), link.rate)
    return found


def _names(labels: Iterable[str]) -> Mapping[str, str]:
    """For each label a name that a site can hold, no two the same."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for label in labels:
        described = _DESCRIBED.fullmatch(label)
        base = _NOT_IN_NAMES.sub("-", described[1] if described else label).strip("-._") or "switch"
        name, count = base, 2
        while name in taken:
            name, count = f"{base}-{count}", count + 1
        taken.add(name)
        names[label] = name
    return names


def _tier_above(
    tier: list[_Group],
    cables: Mapping[tuple[str, str], tuple[LinkRate | None, ...]],
    placed: Collection[str],
    names: Mapping[str, str],
    level: int,
) -> list[_Group]:
    neighbours: dict[str, set[str]] = {}
    for one, two in cables:
        neighbours.setdefault(one, set()).add(two)
        neighbours.setdefault(two, set()).add(one)
    joined: list[tuple[set[str], list[_Group]]] = []
    for group in tier:
        above = {far for member in group.members for far in neighbours.get(member, ()) if far not in placed}
        if not above:
            continue
        members, below = set(above), [group]
        for other in [one for one in joined if one[0] & above]:
            members |= other[0]
            below = other[1] + below
            joined.remove(other)
        joined.append((members, below))
    groups = []
    for number, (members, below) in enumerate(joined, start=1):
        ordered = tuple(sorted(members, key=natural))
        one_name = names[ordered[0]] if len(ordered) == 1 else None
        several = f"tier{level}" if len(joined) == 1 else f"tier{level}-{number}"
        group = _Group(name=one_name or _free(several, names), members=ordered, below=below)
        for child in below:
            child.above = group
        groups.append(group)
    return groups


def _free(name: str, names: Mapping[str, str]) -> str:
    while name in names.values():
        name += "-all"
    return name


def _fact(group: _Group, cables: Mapping[tuple[str, str], tuple[LinkRate | None, ...]], source: str) -> SwitchFacts:
    uplink = None
    if group.above is not None:
        rates = [
            rate
            for (one, two), several in cables.items()
            for rate in several
            if (one in group.members and two in group.above.members)
            or (two in group.members and one in group.above.members)
        ]
        known = [rate for rate in rates if rate is not None]
        counts = Counter(str(rate) for rate in rates if rate is not None)
        words = ", ".join(f"{count} x {rate}" for rate, count in counts.items())
        lacking = len(rates) - len(known)
        uplink = UplinkFacts(
            gbit_per_s=None if lacking else sum(rate.data_gbit_per_s for rate in known),
            source=f"{words or 'no rate'} by {source}" + (f", {lacking} cables without a rate" if lacking else ""),
        )
    return SwitchFacts(
        name=group.name,
        hosts=group.hosts,
        switches=tuple(child.name for child in group.below),
        uplink=uplink,
        rail=group.rail,
    )


def _rails(
    net: InfinibandNet, leaves: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """For each leaf of a net of rails, and each port in one, its rail: the place among the host's ports in use."""
    ports: dict[str, list[tuple[NetNode, int, str]]] = {}
    for link, switch, adapter, _ in net.host_links():
        leaf = net.labels[switch.key]
        if adapter.host is not None and adapter.host in leaves.get(leaf, ()):
            own = next(end.port for end in link.ends if end.node == adapter.key)
            ports.setdefault(adapter.host, []).append((adapter, own, leaf))
    if all(len({leaf for _, _, leaf in own}) == 1 for own in ports.values()):
        return {}, {}, []
    rails: dict[str, set[int]] = {}
    rail_of_port: dict[str, int] = {}
    for host, plugged in ports.items():
        ordered = sorted(plugged, key=lambda one: (natural(one[0].device or ""), one[0].key, one[1]))
        rail_of_leaf = {leaf: rail for rail, leaf in enumerate(dict.fromkeys(leaf for _, _, leaf in ordered))}
        for leaf, rail in rail_of_leaf.items():
            rails.setdefault(leaf, set()).add(rail)
        for adapter, _, leaf in ordered:
            rail_of_port[f"{host} {adapter.device}"] = rail_of_leaf[leaf]
            if adapter.guid is not None:
                rail_of_port[adapter.guid] = rail_of_leaf[leaf]
    mixed = sorted((leaf for leaf, found in rails.items() if len(found) > 1), key=natural)
    if mixed:
        note = (
            f"hosts are plugged into several leaves, and into {mixed[0]} with different ports of theirs"
            f" ({len(mixed)} leaves are like that): which rail a leaf is must be written by hand"
        )
        return {}, {}, [note]
    return {leaf: next(iter(found)) for leaf, found in rails.items()}, rail_of_port, []
