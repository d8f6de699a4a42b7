"""What Slurm's texts say of nodes, partitions and Slurm itself, put together."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hpcserve.site.hostlist import fold_hosts
from hpcserve.site.learning.facts import KnownNode, KnownPartition, SlurmFacts
from hpcserve.site.learning.tiers import natural
from hpcserve.site.slurm_text import UNTYPED, MachineList, NodeFacts, PartitionFacts, topology_plugin

__all__ = ["Machines", "machines_of"]

_VERSION = re.compile(r"\d{2}\.\d{2}(?:\.\d+)?")
_UNLIMITED = frozenset({"unlimited", "infinite", "partition_limit", "none", "n/a"})
# sbatch(1), --time: the forms of a time limit. Two numbers without days are minutes and seconds, with days hours and
# minutes; one alone is minutes, or hours behind days.
_TIME = re.compile(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,2}))?(?::(\d{1,2}))?")


@dataclass(frozen=True, kw_only=True)
class Machines:
    """Nodes by name, partitions where a text lists them, and Slurm's own settings."""

    nodes: Mapping[str, KnownNode]
    partitions: Mapping[str, KnownPartition] | None
    slurm: SlurmFacts | None
    topologies: tuple[str, ...] = ()
    """Those of topology.yaml that partitions with GPUs name."""

    def slurm_with(self, plugin: str | None, block_sizes: tuple[int, ...]) -> SlurmFacts | None:
        """Slurm's settings with what its topology's own text shows; None where no text is Slurm's.

        Where partitions name their topologies TopologyPlugin is only that of the others.
        """
        if self.slurm is None and plugin is None:
            return None
        slurm = self.slurm or SlurmFacts()
        topology = (plugin or slurm.topology) if self.topologies else (slurm.topology or plugin)
        return replace(slurm, topology=topology, block_sizes=slurm.block_sizes or block_sizes)


def machines_of(lists: Sequence[tuple[str, MachineList]], disagreements: list[str], notes: list[str]) -> Machines:
    """All lists together; each comes with its source's name."""
    nodes: dict[str, KnownNode] = {}
    told_by: dict[str, str] = {}
    differing: dict[tuple[str, str], list[str]] = {}
    for source, machines in lists:
        counted = any(described.gres is not None for described in machines.nodes)
        for described in machines.nodes:
            for host in described.hosts:
                new = _node(host, described, counted=counted)
                old = nodes.get(host)
                if old is None:
                    nodes[host] = new
                    told_by[host] = source
                    continue
                nodes[host] = _joined(old, new, (told_by[host], source), differing)
    for (what, _), hosts in differing.items():
        disagreements.append(f"{fold_hosts(sorted(hosts, key=natural))}: {what}")
    notes += _several_types(lists)
    partitions = _partitions(lists, disagreements)
    for source, machines in lists:
        notes += [f"{source} includes {file}, which was not read" for file in machines.includes]
        notes += [f"{source}: {warning}" for warning in machines.warnings]
    named = {
        partition.topology: None
        for _, machines in lists
        for partition in machines.partitions
        if partition.topology and any(host in nodes and nodes[host].gpus for host in partition.hosts)
    }
    return Machines(nodes=nodes, partitions=partitions, slurm=_slurm(lists, nodes), topologies=tuple(named))


def _node(host: str, facts: NodeFacts, *, counted: bool) -> KnownNode:
    """`counted`: the text has GRES of some node, so that one without has none."""
    types = facts.gres.types if facts.gres is not None else {}
    kind = next(iter(types), None) if len(types) == 1 else None
    return KnownNode(
        host=host,
        cores=facts.cpus if facts.cpus is not None else _threads(facts),
        memory_mib=facts.memory_mib,
        gpus=facts.gres.gpus if facts.gres is not None else 0 if counted else None,
        gres_type=None if kind == UNTYPED else kind,
        features=facts.features,
    )


def _threads(facts: NodeFacts) -> int | None:
    """CPUs where only cores are said: slurm.conf(5) counts hardware threads."""
    return None if facts.cores is None else facts.cores * (facts.threads_per_core or 1)


_FIELDS = {"cores": "CPUs", "memory_mib": "MiB of memory", "gpus": "GPUs", "gres_type": "as type of GPU"}


def _joined(
    old: KnownNode, new: KnownNode, sources: tuple[str, str], differing: dict[tuple[str, str], list[str]]
) -> KnownNode:
    """The first text's word on each thing, the second's on what the first is silent about."""
    filled = {}
    for name, unit in _FIELDS.items():
        first, second = getattr(old, name), getattr(new, name)
        if first is None:
            filled[name] = second
        elif second is not None and first != second:
            what = f"{first} {unit} by {sources[0]}, {second} by {sources[1]}; {sources[0]} is taken"
            differing.setdefault((what, name), []).append(old.host)
    return replace(old, features=old.features or new.features, **filled)


def _several_types(lists: Sequence[tuple[str, MachineList]]) -> list[str]:
    return [
        f"{fold_hosts(described.hosts)}: GPUs of several types ({', '.join(described.gres.types)});"
        " a node type of a site has one"
        for _, machines in lists
        for described in machines.nodes
        if described.gres is not None and len(described.gres.types) > 1
    ]


def _partitions(lists: Sequence[tuple[str, MachineList]], disagreements: list[str]) -> dict[str, KnownPartition] | None:
    found: dict[str, KnownPartition] = {}
    told_by: dict[str, str] = {}
    free = (_setting(lists, "AccountingStorageEnforce") or "").lower() in {"none", "0", "(null)"}
    for source, machines in lists:
        for partition in machines.partitions:
            new = _partition(partition, account_required=False if free else None)
            old = found.get(partition.name)
            if old is None:
                found[partition.name] = new
                told_by[partition.name] = source
                continue
            if set(old.hosts) != set(new.hosts) and old.hosts and new.hosts:
                disagreements.append(
                    f"partition {partition.name}: {fold_hosts(sorted(old.hosts, key=natural))} by"
                    f" {told_by[partition.name]}, {fold_hosts(sorted(new.hosts, key=natural))} by {source};"
                    f" {told_by[partition.name]} is taken"
                )
            found[partition.name] = replace(
                old,
                hosts=old.hosts or new.hosts,
                max_time=old.max_time or new.max_time,
                max_nodes=old.max_nodes or new.max_nodes,
                exclusive=old.exclusive or new.exclusive,
            )
    return found or None


def _partition(facts: PartitionFacts, *, account_required: bool | None) -> KnownPartition:
    return KnownPartition(
        hosts=tuple(dict.fromkeys(facts.hosts)),
        max_time=_limit(facts.max_time),
        account_required=account_required,
        max_nodes=facts.max_nodes,
        exclusive=True if facts.exclusive else None,
    )


def _limit(text: str | None) -> str | None:
    """A time limit of any of Slurm's forms as `[days-]hours:minutes:seconds`; None for none, or one not understood."""
    if text is None or text.lower() in _UNLIMITED:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < len(("hours", "minutes", "seconds")):
        numbers = [0, *numbers]
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    minutes, seconds = minutes + seconds // 60, seconds % 60
    hours, minutes = hours + minutes // 60, minutes % 60
    whole_days, hours = int(days or 0) + hours // 24, hours % 24
    clock = f"{hours:02d}:{minutes:02d}:{seconds:02d}"
    return f"{whole_days}-{clock}" if whole_days else clock


def _slurm(lists: Sequence[tuple[str, MachineList]], nodes: Mapping[str, KnownNode]) -> SlurmFacts | None:
    if not lists:
        return None
    version = _VERSION.match(_setting(lists, "SLURM_VERSION") or "")
    mpi = (_setting(lists, "MpiDefault") or "none").lower()
    counted = [node.gpus for node in nodes.values() if node.gpus is not None]
    return SlurmFacts(
        cluster=_setting(lists, "ClusterName"),
        version=version[0] if version else None,
        topology=topology_plugin(_setting(lists, "TopologyPlugin")),
        gpu_gres=any(counted) if counted else None,
        whole_nodes=True if (_setting(lists, "SelectType") or "").lower() == "select/linear" else None,
        mpi=None if mpi in {"none", "(null)"} else mpi,
    )


def _setting(lists: Sequence[tuple[str, MachineList]], key: str) -> str | None:
    return next((value for _, machines in lists if (value := machines.setting(key)) is not None), None)
