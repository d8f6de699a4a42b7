"""What was read, as plain data for people and scripts."""

from collections.abc import Mapping
from typing import Any

from hpcserve.site.slurm_text.machines import MachineList, NodeFacts
from hpcserve.site.slurm_text.topology import BlockList, NamedTopologies, SwitchTree, Topology

__all__ = ["machines", "settings", "topologies", "topology"]


def topology(found: Topology | NamedTopologies) -> Mapping[str, Any]:
    """A topology: its `format`, and switches with nodes, children and levels, or blocks with nodes."""
    if isinstance(found, NamedTopologies):
        return topologies(found)
    told: dict[str, Any] = {"format": "flat"}
    if isinstance(found, SwitchTree):
        told = _tree(found)
    elif isinstance(found, BlockList):
        told = {
            "format": "block",
            "block_sizes": list(found.block_sizes),
            "blocks": {block.name: list(block.nodes) for block in found.blocks},
            "n_nodes": len(found.nodes),
        }
        if not found.blocks:
            told["result"] = "no-topology"
    return {**told, "warnings": list(found.warnings)}


def _tree(found: SwitchTree) -> dict[str, Any]:
    leaf_of: dict[str, str] = {}
    for switch in found.switches:
        for node in switch.nodes:
            leaf_of.setdefault(node, switch.name)
    told: dict[str, Any] = {
        "format": "tree",
        "switches": {
            switch.name: {"nodes": list(switch.nodes), "children": list(switch.children)} for switch in found.switches
        },
        "roots": list(found.roots),
        "levels": {switch.name: switch.level for switch in found.switches},
        "leaves": {switch.name: list(switch.nodes) for switch in found.switches if switch.nodes},
        "leaf_of": leaf_of,
        "n_nodes": len(found.nodes),
        "undefined_children": list(found.undefined_children),
        "unplaced": list(found.unplaced),
    }
    if not found.switches:
        told["result"] = "no-topology"
    return told


def topologies(found: NamedTopologies) -> Mapping[str, Any]:
    """Topologies by name, and which of them is the default."""
    told: dict[str, Any] = {
        "default": found.default,
        "topologies": {name: topology(one) for name, one in found.topologies.items()},
        "warnings": list(found.warnings),
    }
    if not any(_says_something(one) for one in found.topologies.values()):
        told["result"] = "no-topology"
    return told


def _says_something(found: Topology) -> bool:
    if isinstance(found, SwitchTree):
        return bool(found.switches)
    return not isinstance(found, BlockList) or bool(found.blocks)


def machines(found: MachineList) -> Mapping[str, Any]:
    """Nodes one by one and partitions with their nodes; what the text does not say is left out or null."""
    told: dict[str, Any] = {}
    if found.nodes:
        told["nodes"] = {host: _node(group) for group in found.nodes for host in group.hosts}
        told["n_nodes"] = len(told["nodes"])
    if found.partitions:
        told["partitions"] = {one.name: list(one.hosts) for one in found.partitions}
        told["default_partition"] = found.default_partition
        told["exclusive"] = [one.name for one in found.partitions if one.exclusive]
        told["max_time"] = {one.name: one.max_time for one in found.partitions if one.max_time}
        told["topology_of"] = {one.name: one.topology for one in found.partitions if one.topology}
        told["down"] = [one.name for one in found.partitions if one.up is False]
    if found.settings:
        told["settings"] = dict(found.settings)
    return {**told, "warn": list(found.warnings)}


def _node(group: NodeFacts) -> dict[str, Any]:
    said = {
        "mem_mb": group.memory_mib,
        "cpus": group.cpus,
        "cores": group.cores,
        "state": group.state,
        "partitions": list(group.partitions) or None,
    }
    return {
        "gpus": group.gres.gpus if group.gres else 0,
        "types": dict(group.gres.types) if group.gres else {},
        "features": list(group.features),
        **{key: value for key, value in said.items() if value is not None},
        **({} if group.state is None else {"usable": group.usable}),
    }


_TOLD = (
    *("ClusterName", "SLURM_VERSION", "TopologyPlugin", "TopologyParam", "GresTypes", "SelectType"),
    *("SelectTypeParameters", "MpiDefault", "MpiParams", "SchedulerParameters", "AccountingStorageType"),
    *("MaxArraySize", "SwitchType", "TaskPlugin", "ProctrackType", "PreemptMode", "KillWait"),
)
"""Settings that decide how hpcserve asks this Slurm for things."""


def settings(found: MachineList) -> Mapping[str, Any]:
    """The settings of `scontrol show config` that matter to hpcserve, by Slurm's own names."""
    said = {key: found.setting(key) for key in _TOLD}
    return {"settings": {key: value for key, value in said.items() if value is not None}, "warn": list(found.warnings)}
