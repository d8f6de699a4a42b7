"""`slurm.conf` -> nodes, partitions and settings (slurm.conf(5))."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from hpcserve.site.hostlist import HostListError, split_hosts
from hpcserve.site.mistakes import Mistakes
from hpcserve.site.reading import first_of
from hpcserve.site.slurm_text.fields import gres_of, limit_of, number_of, state_of, text_of, truth_of, words_of
from hpcserve.site.slurm_text.machines import MachineList, NodeFacts, PartitionFacts
from hpcserve.site.slurm_text.names import Names
from hpcserve.site.slurm_text.settings import Include, Setting, configuration

__all__ = ["parse_slurm_conf"]

Values = dict[str, Setting]

_ALIASES = {"procs": "cpus", "features": "feature", "shared": "oversubscribe"}
"""Other names for the same key: slurm.conf(5), and read_config.c for what it no longer documents."""
_HEADS = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname")


@dataclass(slots=True, kw_only=True)
class _Reading:
    mistakes: Mistakes
    names: Names
    node_default: Values = field(default_factory=dict)
    partition_default: Values = field(default_factory=dict)
    nodes: list[NodeFacts] = field(default_factory=list)
    group_of: dict[str, NodeFacts] = field(default_factory=dict)
    partitions: dict[str, Values] = field(default_factory=dict)
    node_sets: dict[str, Values] = field(default_factory=dict)
    settings: list[tuple[str, str]] = field(default_factory=list)
    includes: list[str] = field(default_factory=list)


def parse_slurm_conf(text: str, source: str) -> MachineList:
    """The nodes, partitions and settings of a slurm.conf; raises InputError with every mistake.

    DEFAULT lines hold for the lines after them, keys are taken in any case, a partition's nodes may be `ALL` or the
    name of a NodeSet. Included files are named, not read: what they say may be missing here.
    """
    mistakes = Mistakes(source)
    reading = _Reading(mistakes=mistakes, names=Names(mistakes))
    for line in configuration(text, mistakes):
        if isinstance(line, Include):
            reading.includes.append(line.file)
        else:
            _read(line, reading)
    warnings = [f"include {file}" for file in reading.includes]
    partitions = tuple(_partitions(reading, warnings))
    mistakes.check()
    return MachineList(
        nodes=tuple(reading.nodes),
        partitions=partitions,
        settings=tuple(reading.settings),
        includes=tuple(reading.includes),
        warnings=tuple(warnings),
    )


def _read(line: tuple[Setting, ...], reading: _Reading) -> None:
    head = line[0]
    if head.name not in _HEADS:
        reading.settings.extend((setting.key, setting.value) for setting in line)
        return
    values = {_ALIASES.get(setting.name, setting.name): setting for setting in line}
    name = head.value
    if head.name == "nodename":
        if name.upper() == "DEFAULT":
            reading.node_default |= values
        else:
            _read_node(reading.node_default | values, reading)
    elif head.name == "partitionname":
        if name.upper() == "DEFAULT":
            reading.partition_default |= values
        else:
            for one in name.split(","):
                reading.partitions[one] = reading.partition_default | values
    elif head.name == "nodeset":
        reading.node_sets[name] = values


def _nodes(values: Values, reading: _Reading) -> NodeFacts:
    mistakes, head = reading.mistakes, values["nodename"]
    boards = number_of(values, "boards", mistakes)
    sockets = number_of(values, "sockets", mistakes)
    per_board = number_of(values, "socketsperboard", mistakes)
    if sockets is None and per_board is not None:
        sockets = per_board * (boards or 1)
    state, usable = state_of(values, "state", mistakes)
    return NodeFacts(
        hosts=reading.names.expand(head.value, head.value_place),
        gres=gres_of(values, "gres", mistakes),
        memory_mib=number_of(values, "realmemory", mistakes),
        cpus=number_of(values, "cpus", mistakes),
        sockets=sockets,
        cores_per_socket=number_of(values, "corespersocket", mistakes),
        threads_per_core=number_of(values, "threadspercore", mistakes),
        features=words_of(values, "feature"),
        state=state,
        # UNKNOWN, the usual state here, only says that slurmctld will find out.
        usable=None if state is None or state.upper() in {"UNKNOWN", "CLOUD"} else usable,
        address=text_of(values, "nodeaddr"),
    )


def _read_node(values: Values, reading: _Reading) -> None:
    group = _nodes(values, reading)
    double = [host for host in group.hosts if host in reading.group_of]
    if double:
        reading.mistakes.add(
            values["nodename"].place,
            f"{first_of(double)} a second time",
            "each node in one NodeName line was wanted",
            "remove it from one of the two",
        )
    for host in group.hosts:
        reading.group_of.setdefault(host, group)
    reading.nodes.append(group)


def _partitions(reading: _Reading, warnings: list[str]) -> Iterator[PartitionFacts]:
    for name, values in reading.partitions.items():
        share = (text_of(values, "oversubscribe") or "").upper()
        state = text_of(values, "state")
        yield PartitionFacts(
            name=name,
            hosts=_hosts(name, values, reading, warnings),
            default=bool(truth_of(values, "default")),
            exclusive=share == "EXCLUSIVE",
            max_time=limit_of(values, "maxtime"),
            max_nodes=number_of(values, "maxnodes", reading.mistakes),
            topology=text_of(values, "topology"),
            up=None if state is None else state.upper() == "UP",
        )


def _hosts(name: str, values: Values, reading: _Reading, warnings: list[str]) -> tuple[str, ...]:
    """The nodes of a partition: `ALL`, node sets and host lists, each node once."""
    nodes = values.get("nodes")
    if nodes is None or not nodes.value:
        return ()
    hosts: dict[str, None] = {}
    unknown: list[str] = []
    for word in _items(nodes.value):
        if word.upper() == "ALL":
            reading.names.spend(len(reading.group_of), nodes.value_place)
            hosts.update(dict.fromkeys(reading.group_of))
        elif word in reading.node_sets and word not in reading.group_of:
            members = _set(reading.node_sets[word], reading)
            reading.names.spend(len(members) + len(reading.nodes), nodes.value_place)
            hosts.update(dict.fromkeys(members))
        else:
            for host in reading.names.expand(word, nodes.value_place):
                hosts[host] = None
                if host not in reading.group_of:
                    unknown.append(host)
    if unknown:
        warnings.append(f"partition {name} has nodes that no NodeName line here describes: {first_of(unknown)}")
    return tuple(hosts)


def _set(values: Values, reading: _Reading) -> tuple[str, ...]:
    """The nodes of a NodeSet: those it names, and those with its feature."""
    nodes = values.get("nodes")
    members: dict[str, None] = {}
    if nodes is not None and nodes.value.upper() == "ALL":
        members.update(dict.fromkeys(reading.group_of))
    elif nodes is not None:
        members.update(dict.fromkeys(reading.names.expand(nodes.value, nodes.value_place)))
    wanted = set(words_of(values, "feature"))
    for group in reading.nodes:
        if wanted & set(group.features):
            members.update(dict.fromkeys(group.hosts))
    return tuple(members)


def _items(text: str) -> list[str]:
    """The items between the commas outside brackets; a text whose brackets do not match is one item."""
    try:
        return list(split_hosts(text))
    except HostListError:
        return [text]
