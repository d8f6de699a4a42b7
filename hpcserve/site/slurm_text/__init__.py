"""Text that Slurm prints and reads -> topologies, nodes, partitions, settings.

In: topology.conf, topology.yaml, slurm.conf, what scontrol and sinfo printed. Out: `SwitchTree`, `BlockList`, `Flat`,
`NamedTopologies`, `MachineList`, or every mistake at once. Touches: nothing.
"""

from hpcserve.site.slurm_text.gres import UNTYPED, Gres, parse_gres
from hpcserve.site.slurm_text.json_machines import parse_json_machines
from hpcserve.site.slurm_text.kinds import KINDS
from hpcserve.site.slurm_text.lists import Expressions
from hpcserve.site.slurm_text.machines import MachineList, NodeFacts, PartitionFacts
from hpcserve.site.slurm_text.node_state import usable
from hpcserve.site.slurm_text.show_machines import parse_show_config, parse_show_node, parse_show_partition
from hpcserve.site.slurm_text.show_topology import parse_show_topology
from hpcserve.site.slurm_text.sinfo import parse_sinfo
from hpcserve.site.slurm_text.slurm_conf import parse_slurm_conf
from hpcserve.site.slurm_text.topology import (
    Block,
    BlockList,
    Flat,
    NamedTopologies,
    SwitchNode,
    SwitchTree,
    Topology,
    topology_plugin,
)
from hpcserve.site.slurm_text.topology_conf import parse_topology_conf
from hpcserve.site.slurm_text.topology_yaml import parse_topology_yaml

__all__ = [
    "KINDS",
    "UNTYPED",
    "Block",
    "BlockList",
    "Expressions",
    "Flat",
    "Gres",
    "MachineList",
    "NamedTopologies",
    "NodeFacts",
    "PartitionFacts",
    "SwitchNode",
    "SwitchTree",
    "Topology",
    "parse_gres",
    "parse_json_machines",
    "parse_show_config",
    "parse_show_node",
    "parse_show_partition",
    "parse_show_topology",
    "parse_sinfo",
    "parse_slurm_conf",
    "parse_topology_conf",
    "parse_topology_yaml",
    "topology_plugin",
    "usable",
]
