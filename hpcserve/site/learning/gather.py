"""Texts that were read, of whatever kinds -> `Facts`, with what they disagree on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpcserve.site.infiniband_text import InfinibandNet
from hpcserve.site.learning.facts import Facts, NicFacts
from hpcserve.site.learning.gather_machines import machines_of
from hpcserve.site.learning.gather_probes import probes_of
from hpcserve.site.learning.gather_topology import topology_of
from hpcserve.site.slurm_text import BlockList, Expressions, Flat, MachineList, NamedTopologies, SwitchTree

__all__ = ["Reading", "gather"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One text as it was understood."""

    source: str
    """Where it came from, for people: a file's path, or `node01: ibstat`."""
    kind: str
    """The name of its kind."""
    parsed: Any
    host: str | None = None
    """The node that printed it, where that is known for sure."""


def gather(readings: Iterable[Reading]) -> Facts:
    """What the readings say together. Where two differ the first one's word is taken, and the difference is told."""
    ordered = tuple(readings)
    disagreements: list[str] = []
    notes: list[str] = []
    machines = machines_of(
        [(one.source, one.parsed) for one in ordered if isinstance(one.parsed, MachineList)], disagreements, notes
    )
    slurm = [
        (one.source, one.parsed)
        for one in ordered
        if isinstance(one.parsed, SwitchTree | BlockList | Flat | NamedTopologies)
    ]
    notes += [
        f"{one.source} ({one.kind}): a list of expressions says of no node what it has; nothing of it is taken"
        for one in ordered
        if isinstance(one.parsed, Expressions)
    ]
    nets = [(one.kind, one.parsed) for one in ordered if isinstance(one.parsed, InfinibandNet)]
    topology = topology_of(slurm, nets, machines, disagreements, notes)
    nodes = machines.nodes or topology.nodes
    probes = {
        host: replace(probe, nics=tuple(_railed(host, nic, topology.rail_of_port) for nic in probe.nics))
        for host, probe in probes_of(ordered, nodes, disagreements, notes).items()
    }
    return Facts(
        nodes=nodes,
        probes=probes,
        partitions=machines.partitions,
        switches=topology.switches,
        switch_source=topology.source,
        blocks=topology.blocks,
        slurm=machines.slurm_with(topology.plugin, topology.block_sizes),
        disagreements=tuple(disagreements),
        notes=tuple(notes),
    )


def _railed(host: str, nic: NicFacts, rail_of_port: Mapping[str, int]) -> NicFacts:
    """The NIC with the rail that its port is plugged into, where the net has rails and names the port."""
    rail = rail_of_port.get(nic.guid or "", rail_of_port.get(f"{host} {nic.device}"))
    return nic if rail is None else replace(nic, rail=rail)
