"""Slurm's topology and an InfiniBand net, put together: one tree of switches, with the rates that the net knows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpcserve.site.hostlist import fold_hosts
from hpcserve.site.infiniband_text import InfinibandNet, LinkRate, NetLink
from hpcserve.site.learning.facts import BlockFacts, KnownNode, SwitchFacts
from hpcserve.site.learning.gather_machines import Machines
from hpcserve.site.learning.tiers import natural, tiers_of
from hpcserve.site.slurm_text import BlockList, Flat, NamedTopologies, SwitchTree, Topology

__all__ = ["Topologies", "topology_of"]


@dataclass(frozen=True, kw_only=True)
class Topologies:
    """What is known of switches and blocks; `nodes` are those that only these texts name."""

    nodes: Mapping[str, KnownNode]
    switches: tuple[SwitchFacts, ...] | None
    source: str
    blocks: tuple[BlockFacts, ...] | None
    plugin: str | None
    block_sizes: tuple[int, ...]
    rail_of_port: Mapping[str, int]
    """In a fabric of rails the rail of each adapter port, by its GUID and by `HOST DEVICE`."""


def topology_of(
    slurm: Sequence[tuple[str, Topology | NamedTopologies]],
    nets: Sequence[tuple[str, InfinibandNet]],
    machines: Machines,
    disagreements: list[str],
    notes: list[str],
) -> Topologies:
    """All of them together. Slurm's tree holds where there is one, as jobs are placed by it; the net adds rates."""
    tree, blocks, plugin = _of_slurm(slurm, machines.topologies, disagreements, notes)
    from_net = _of_nets(nets, machines.nodes, tree, notes)
    switches, source = _tree(tree), "Slurm's topology"
    rail_of_port: Mapping[str, int] = {}
    if from_net is not None:
        kind, found, rail_of_port = from_net
        if switches is None or any(switch.rail is not None for switch in found):
            if switches is not None:
                notes.append(f"the fabric is cabled by rails, which Slurm's tree cannot say: {kind} is taken")
            switches, source = found, kind
        else:
            switches = _with_rates(switches, found, kind, disagreements, notes)
            source = f"Slurm's topology and {kind}"
    names = [host for switch in switches or () for host in switch.hosts] + [
        host for block in (blocks.blocks if blocks else ()) for host in block.nodes
    ]
    return Topologies(
        nodes={name: KnownNode(host=name) for name in names},
        switches=switches or None,
        source=source,
        blocks=tuple(BlockFacts(name=one.name, hosts=one.nodes) for one in blocks.blocks) if blocks else None,
        plugin=plugin,
        block_sizes=blocks.block_sizes if blocks else (),
        rail_of_port=rail_of_port,
    )


def _of_slurm(
    texts: Sequence[tuple[str, Topology | NamedTopologies]],
    of_gpus: Sequence[str],
    disagreements: list[str],
    notes: list[str],
) -> tuple[SwitchTree | None, BlockList | None, str | None]:
    trees: list[tuple[str, SwitchTree]] = []
    blocks: list[tuple[str, BlockList]] = []
    plugin: str | None = None
    for source, text in texts:
        notes += [f"{source}: {warning}" for warning in text.warnings]
        one = _chosen(source, text, of_gpus, notes) if isinstance(text, NamedTopologies) else text
        if isinstance(one, SwitchTree):
            trees.append((source, one))
        elif isinstance(one, BlockList):
            blocks.append((source, one))
        if one is not None:
            kind = "tree" if isinstance(one, SwitchTree) else "flat" if isinstance(one, Flat) else "block"
            plugin = plugin or kind
    for source, other in trees[1:]:
        moved = sorted(_moved(_leaf_of(trees[0][1]), _leaf_of(other)), key=natural)
        if moved:
            disagreements.append(
                f"{fold_hosts(moved)}: under another leaf by {source} than by {trees[0][0]}; {trees[0][0]} is taken"
            )
    return trees[0][1] if trees else None, blocks[0][1] if blocks else None, plugin


def _chosen(source: str, named: NamedTopologies, of_gpus: Sequence[str], notes: list[str]) -> Topology | None:
    """Of several topologies the one that partitions with GPUs name, else that of partitions which name none."""
    known = [name for name in of_gpus if name in named.topologies]
    if len(known) > 1:
        notes.append(f"{source}: partitions with GPUs have several topologies: {', '.join(known)}; a site has one")
    names = known or ([named.default] if named.default is not None else list(named.topologies))
    if not known and len(names) != 1:
        notes.append(f"{source} has several topologies and no default: {', '.join(named.topologies)}; none is taken")
        return None
    others = [name for name in named.topologies if name != names[0]]
    if others:
        why = "which partitions with GPUs name" if known else "the default"
        notes.append(f"{source}: topology {names[0]}, {why}, is taken, not {', '.join(others)}; a site has one")
    return named.topologies[names[0]]


def _leaf_of(tree: SwitchTree) -> dict[str, str]:
    return {node: switch.name for switch in tree.switches for node in switch.nodes}


def _moved(one: Mapping[str, str], two: Mapping[str, str]) -> list[str]:
    return [host for host, leaf in two.items() if host in one and one[host] != leaf]


def _tree(tree: SwitchTree | None) -> tuple[SwitchFacts, ...] | None:
    if tree is None:
        return None
    ordered = sorted(tree.switches, key=lambda switch: switch.level)
    return tuple(
        SwitchFacts(name=switch.name, hosts=() if switch.children else switch.nodes, switches=switch.children)
        for switch in ordered
    )


def _of_nets(
    nets: Sequence[tuple[str, InfinibandNet]],
    nodes: Mapping[str, KnownNode],
    tree: SwitchTree | None,
    notes: list[str],
) -> tuple[str, tuple[SwitchFacts, ...], Mapping[str, int]] | None:
    """The tree that the first net makes, over the nodes that Slurm knows, under Slurm's names of them."""
    for kind, net in nets:
        notes += [f"{kind}: {warning}" for warning in net.warnings]
        notes += [_slow(kind, net, link, link.possible) for link in net.degraded]
        notes += [_slow(kind, net, link, usual) for link, usual in net.slower if link not in net.degraded]
    if not nets:
        return None
    kind, net = nets[0]
    known = set(nodes) or (set(tree.nodes) if tree else set())
    called = _called(net.hosts, known)
    if known and not called:
        notes.append(
            f"no host of the net has a name that Slurm knows: {kind} names {net.hosts[0] if net.hosts else 'none'},"
            f" Slurm {min(known, key=natural)}; the net is left out"
        )
        return None
    missing = sorted(known - set(called.values()), key=natural)
    if missing:
        notes.append(f"not in the net by {kind}, down or named otherwise: {fold_hosts(missing)}")
    tiers = tiers_of(net, hosts=called.keys() if known else None, source=kind)
    notes += tiers.notes
    switches = tuple(
        replace(switch, hosts=tuple(called.get(host, host) for host in switch.hosts)) for switch in tiers.switches
    )
    return kind, switches, tiers.rail_of_port


def _slow(kind: str, net: InfinibandNet, link: NetLink, wanted: LinkRate | None) -> str:
    ends = " to ".join(net.end_label(end) for end in link.ends)
    return f"{kind}: the link {ends} runs at {link.rate or 'an unknown rate'}, where {wanted} was expected"


def _called(hosts: Sequence[str], known: set[str]) -> dict[str, str]:
    """For each host of the net that Slurm knows, Slurm's name for it: the same, or the same up to the first dot."""
    by_short = {name.split(".")[0]: name for name in known}
    called: dict[str, str] = {}
    for host in hosts:
        if host in known:
            called[host] = host
        elif (own := by_short.get(host.split(".")[0])) is not None and own not in hosts:
            called[host] = own
    return called


def _with_rates(
    tree: tuple[SwitchFacts, ...],
    net: tuple[SwitchFacts, ...],
    kind: str,
    disagreements: list[str],
    notes: list[str],
) -> tuple[SwitchFacts, ...]:
    """Slurm's switches with the uplinks of those of the net that stand in their place; what differs is told."""
    leaf_in_net = {host: switch.name for switch in net for host in switch.hosts}
    members = {switch.name: frozenset(switch.hosts) for switch in net}
    by_name = {switch.name: switch for switch in net}
    place: dict[str, str] = {}
    for switch in (one for one in tree if one.hosts):
        counts = Counter(leaf_in_net[host] for host in switch.hosts if host in leaf_in_net)
        if not counts:
            continue
        whole = [leaf for leaf in counts if members[leaf] <= set(switch.hosts)]
        if len(counts) > 1 and len(whole) == len(counts):
            notes.append(
                f"leaf {switch.name} of Slurm's topology is {len(counts)} switches by {kind}:"
                f" {', '.join(sorted(counts, key=natural)[:8])}; it is kept as one, without a rate"
            )
            continue
        leaf = counts.most_common(1)[0][0]
        astray = [host for host in switch.hosts if leaf_in_net.get(host, leaf) != leaf]
        if leaf in place.values():
            disagreements.append(
                f"leaf {switch.name} of Slurm's topology and another are one switch by {kind}: {leaf};"
                " Slurm's topology is taken, without a rate"
            )
            continue
        place[switch.name] = leaf
        for other in sorted({leaf_in_net[host] for host in astray}, key=natural):
            hosts = fold_hosts(sorted((host for host in astray if leaf_in_net[host] == other), key=natural))
            disagreements.append(
                f"{hosts}: under {switch.name} by Slurm's topology, under {other} by {kind}, where the rest of"
                f" {switch.name} is under {leaf}; Slurm's topology is taken"
            )
    for switch in (one for one in tree if one.switches):
        below = {place.get(child) for child in switch.switches}
        same = [one for one in net if one.switches and set(one.switches) == below]
        if len(same) == 1:
            place[switch.name] = same[0].name
    return tuple(
        replace(switch, uplink=by_name[place[switch.name]].uplink if switch.name in place else None) for switch in tree
    )
