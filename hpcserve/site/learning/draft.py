"""`Facts` as a draft of a site: what is known as values, what is required and was not learnt as gaps."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcserve.site.hostlist import fold_hosts
from hpcserve.site.learning.draft_types import GBIT_PER_GB, named, offered_nics, or_gap, type_draft, types_of
from hpcserve.site.learning.facts import Facts, KnownNode, KnownPartition, ProbeFacts, SwitchFacts
from hpcserve.site.learning.leaves import Branch, Gap, Items, Known, LearntRate, Node
from hpcserve.site.learning.tiers import natural

__all__ = ["Draft", "draft_of", "group_label", "named"]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """The draft, and for each of its node types the hosts that are of it."""

    branch: Branch
    hosts_of_type: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]
    offered_nics: Mapping[str, Mapping[str, Branch]] = field(default_factory=dict)
    """For each node type further NICs by name: drafted, and written only where the admin wants them."""
    interfaces: str | None = None
    """Which interfaces are up on which node, in words: `networks` is to be chosen from them."""


def draft_of(facts: Facts) -> Draft:
    """What the facts say as far as a site can say it."""
    notes: list[str] = []
    nodes = _with_gpus(facts, notes)
    types = types_of(nodes, facts.probes)
    branch: dict[str, Node] = {}
    if types:
        branch["node_types"] = Items(
            label=named,
            mapping=True,
            whole=False,
            items={name: type_draft(members, facts, notes) for name, members in types.items()},
        )
        branch["nodes"] = Items(label=group_label, items=dict(_groups(types)))
    known = frozenset(nodes)
    if facts.partitions is not None:
        branch["partitions"] = Items(label=named, mapping=True, items=dict(_partitions(facts.partitions, known, notes)))
    if facts.switches is not None:
        branch["switches"] = Items(label=named, items=_switches(facts.switches, facts.switch_source, known, notes))
    domains = _domains(facts.probes, known)
    if domains:
        branch["nvlink_domains"] = Items(label=named, items=domains, whole=False)
    if facts.blocks:
        branch["blocks"] = Items(
            label=named,
            items={
                block.name: {
                    "name": Known(value=block.name, source="Slurm"),
                    "hosts": _hosts((host for host in block.hosts if host in known), "Slurm"),
                }
                for block in facts.blocks
                if known.intersection(block.hosts)
            },
        )
    if facts.slurm is not None:
        branch["slurm"] = _slurm(facts)
    hosts = {name: tuple(node.host for node in members) for name, members in types.items()}
    offered = {name: offered_nics(members, facts) for name, members in types.items()}
    return Draft(
        branch=branch, hosts_of_type=hosts, notes=tuple(notes), offered_nics=offered, interfaces=_interfaces(facts)
    )


def group_label(item: Mapping[str, Any]) -> str:
    """The label of a group of nodes: its type, and the features that tell it from others of that type."""
    features = item.get("features")
    return "+".join([str(item.get("type")), *sorted(map(str, features if isinstance(features, list | tuple) else ()))])


def _interfaces(facts: Facts) -> str | None:
    probe = next((probe for probe in facts.probes.values() if probe.interfaces), None)
    return None if probe is None else f"up on {probe.host} are {', '.join(probe.interfaces)}"


def _hosts(hosts: Iterable[str], source: str) -> Known:
    return Known(value=fold_hosts(sorted(hosts, key=natural)), source=source, form="hosts")


def _with_gpus(facts: Facts, notes: list[str]) -> dict[str, KnownNode]:
    """Nodes that can serve: those of which Slurm knows a GPU, or all where it knows of none anywhere."""
    without = [
        host
        for host, node in facts.nodes.items()
        if node.gpus == 0 and not (host in facts.probes and facts.probes[host].gpu_count)
    ]
    if not without or len(without) == len(facts.nodes):
        return dict(facts.nodes)
    notes.append(f"left out, as they have no GPU: {fold_hosts(sorted(without, key=natural))}")
    gone = frozenset(without)
    return {host: node for host, node in facts.nodes.items() if host not in gone}


def _groups(types: Mapping[str, tuple[KnownNode, ...]]) -> Iterator[tuple[str, Branch]]:
    for name, members in types.items():
        by_features: dict[tuple[str, ...], list[str]] = {}
        for node in members:
            by_features.setdefault(node.features, []).append(node.host)
        for features, hosts in by_features.items():
            group: dict[str, Node] = {"hosts": _hosts(hosts, "Slurm"), "type": Known(value=name, source="the import")}
            if features:
                group["features"] = Known(value=list(features), source="Slurm")
            yield group_label({"type": name, "features": features}), group


def _partitions(
    partitions: Mapping[str, KnownPartition], known: frozenset[str], notes: list[str]
) -> Iterator[tuple[str, Branch]]:
    empty = [name for name, partition in partitions.items() if not known.intersection(partition.hosts)]
    if empty:
        notes.append(f"partitions left out, as none of their nodes is of the site: {', '.join(empty)}")
    for name, partition in partitions.items():
        hosts = [host for host in partition.hosts if host in known]
        if not hosts:
            continue
        branch: dict[str, Node] = {
            "hosts": _hosts(dict.fromkeys(hosts), "Slurm"),
            "max_time": Known(value=partition.max_time, source="Slurm", form="duration")
            if partition.max_time
            else Gap(needed="Slurm sets no limit here: the longest job that you want, as 7-00:00:00"),
            "account_required": or_gap(
                partition.account_required, "Slurm", "whether sbatch refuses a job without --account"
            ),
        }
        if partition.max_nodes is not None:
            branch["max_nodes"] = Known(value=partition.max_nodes, source="Slurm")
        if partition.exclusive is not None:
            branch["exclusive"] = Known(value=partition.exclusive, source="Slurm")
        yield name, branch


def _switches(
    switches: tuple[SwitchFacts, ...], source: str, known: frozenset[str], notes: list[str]
) -> dict[str, Branch]:
    """The tree over the nodes of the site: switches that have none of them below are left out."""
    kept: dict[str, SwitchFacts] = {}
    pending = list(switches)
    while True:
        ready = [
            switch
            for switch in pending
            if known.intersection(switch.hosts) or any(child in kept for child in switch.switches)
        ]
        if not ready:
            break
        kept.update({switch.name: switch for switch in ready})
        pending = [switch for switch in pending if switch.name not in kept]
    if pending:
        names = ", ".join(switch.name for switch in pending[:8]) + (" ..." if pending[8:] else "")
        notes.append(f"switches left out, as no node of the site is below them: {names}")
    parented = {child for switch in kept.values() for child in switch.switches}
    drafts: dict[str, Branch] = {}
    for switch in (one for one in switches if one.name in kept):
        branch: dict[str, Node] = {"name": Known(value=switch.name, source=source)}
        if switch.hosts:
            branch["hosts"] = _hosts((host for host in switch.hosts if host in known), source)
        else:
            branch["switches"] = _hosts((child for child in switch.switches if child in kept), source)
        if switch.name in parented:
            branch["uplink"] = _uplink(switch, source)
        if switch.rail is not None:
            branch["rail"] = Known(value=switch.rail, source=source)
        drafts[switch.name] = branch
    return drafts


def _uplink(switch: SwitchFacts, source: str) -> LearntRate:
    if switch.uplink is None:
        return LearntRate(
            nominal_gb_per_s=None, source=f"{source} prints no rates; ibnetdiscover, the vendor, or `site measure`"
        )
    rate = switch.uplink.gbit_per_s
    return LearntRate(nominal_gb_per_s=None if rate is None else rate / GBIT_PER_GB, source=switch.uplink.source)


def _domains(probes: Mapping[str, ProbeFacts], known: frozenset[str]) -> dict[str, Branch]:
    found: dict[tuple[str, int], list[str]] = {}
    for probe in probes.values():
        if probe.domain is not None and probe.host in known:
            found.setdefault(probe.domain, []).append(probe.host)
    by = "not told by nvidia-smi -q, which knows the domain and no rate; vendor, or `site measure`"
    return {
        f"nvl-{uuid[:8]}-{clique}": {
            "name": Known(value=f"nvl-{uuid[:8]}-{clique}", source="nvidia-smi -q"),
            "hosts": _hosts(hosts, "nvidia-smi -q"),
            "rate": LearntRate(nominal_gb_per_s=None, source=by),
            "cluster_uuid": Known(value=uuid, source="nvidia-smi -q"),
            "clique": Known(value=clique, source="nvidia-smi -q"),
        }
        for (uuid, clique), hosts in found.items()
    }


def _slurm(facts: Facts) -> Branch:
    slurm = facts.slurm
    if slurm is None:
        return {}
    request = None if slurm.gpu_gres is None else "gres" if slurm.gpu_gres else "none"
    branch: dict[str, Node] = {
        "gpu_request": or_gap(request, "Slurm", "gres, gpus-per-node or none: GresTypes of `scontrol show config`"),
        "exclusive": or_gap(
            True if slurm.whole_nodes else None, "Slurm", "true where jobs shall have whole nodes, else false"
        ),
        "switches_option": or_gap(
            None if slurm.topology is None else slurm.topology != "flat",
            "Slurm",
            "true where TopologyPlugin of `scontrol show config` is tree or block",
        ),
    }
    for key in ("version", "topology", "mpi"):
        value = getattr(slurm, key)
        if value is not None:
            branch[key] = Known(value=value, source="Slurm")
    if slurm.block_sizes:
        branch["block_sizes"] = Known(value=list(slurm.block_sizes), source="Slurm")
    return branch
