"""Slurm's texts as kinds: how each is known, and what is understood of it as plain data."""

import re
from typing import Any

from hpcserve.site.kind import Kind
from hpcserve.site.slurm_text.json_machines import looks_like_json, parse_json_machines
from hpcserve.site.slurm_text.lists import expressions_of, parse_gres_lines, parse_host_lists, parse_states
from hpcserve.site.slurm_text.node_state import is_node_state
from hpcserve.site.slurm_text.show_machines import parse_show_config, parse_show_node, parse_show_partition
from hpcserve.site.slurm_text.show_topology import NO_TOPOLOGY, parse_show_topology
from hpcserve.site.slurm_text.sinfo import is_header, parse_sinfo
from hpcserve.site.slurm_text.slurm_conf import parse_slurm_conf
from hpcserve.site.slurm_text.topology_conf import parse_topology_conf
from hpcserve.site.slurm_text.topology_yaml import parse_topology_yaml
from hpcserve.site.slurm_text.understood import machines, settings, topologies, topology

__all__ = ["KINDS"]

_ENOUGH = 65536
"""Characters from the start that tell what a text is."""

_YAML = re.compile(r"^-[ \t]{1,9}topology[ \t]{0,9}:", re.MULTILINE)
_SHOW_TOPOLOGY = re.compile(
    r"^[ \t]{0,99}(?:SwitchName=\S{1,999} Level=\d|(?:BlockName|AggregatedBlock)=\S{1,9999} BlockIndex="
    r"|(?:Ring|Torus)\w{0,20}=)",
    re.MULTILINE,
)
_TOPOLOGY_CONF = re.compile(r"^[ \t]{0,99}(?:switchname|blockname)[ \t]{0,9}=", re.MULTILINE | re.IGNORECASE)
_SLURM_CONF = re.compile(
    r"^[ \t]{0,99}(?:clustername|slurmctldhost|controlmachine|nodename|partitionname|nodeset|topologyplugin|grestypes)"
    r"[ \t]{0,9}=",
    re.MULTILINE | re.IGNORECASE,
)
_SHOW_NODE = re.compile(r"^[ \t]{0,99}NodeName=", re.MULTILINE)
_SHOW_PARTITION = re.compile(r"^[ \t]{0,99}PartitionName=", re.MULTILINE)
_SHOW_CONFIG = re.compile(r"^(?:Configuration data as of |SLURM_VERSION\s{0,40}=)", re.MULTILINE)
_GRES = re.compile(
    r"^(?:gres=)?(?:(?:gpu|shard|mps|nic|gres/gpu)(?:[:(,=]|$)|(?:cpu|mem)=[^,\s]{1,20},|\(null\)$)", re.IGNORECASE
)
_ONE_GRES = re.compile(r"[^ ]+")
_ONE_HOST_LIST = re.compile(r"[^\s=:\"{}()]+")
_BRACKET = re.compile(r"[\[\]]")
_ONE_WORD = re.compile(r"\S+")


def _start(text: str) -> str:
    return text[:_ENOUGH]


def _lines(text: str) -> list[str]:
    return [line for line in (one.strip() for one in _start(text).split("\n")) if line and not line.startswith("#")]


def _is_show_topology(text: str) -> bool:
    start = _start(text)
    return bool(_SHOW_TOPOLOGY.search(start) or (len(start) < 400 and NO_TOPOLOGY.search(start)))  # noqa: PLR2004


def _is_show_node(text: str) -> bool:
    start = _start(text)
    # A CPUAlloc is never configured: it tells a printed node from a line of slurm.conf.
    return bool(_SHOW_NODE.search(start)) and "CPUAlloc=" in start


def _is_show_partition(text: str) -> bool:
    start = _start(text)
    return bool(_SHOW_PARTITION.search(start)) and "TotalNodes=" in start


def _is_gres_list(text: str) -> bool:
    return _mostly(_lines(text), _ONE_GRES, _GRES)


def _is_host_list(text: str) -> bool:
    """Brackets in most lines and nothing that other texts have: a plain word could be anything."""
    return _mostly(_lines(text), _ONE_HOST_LIST, _BRACKET)


def _is_state_list(text: str) -> bool:
    lines = _lines(text)
    states = sum(is_node_state(line) for line in lines if len(line) < 200)  # noqa: PLR2004
    return all(map(_ONE_WORD.fullmatch, lines)) and 2 * states > len(lines)


def _mostly(lines: list[str], each: re.Pattern[str], most: re.Pattern[str]) -> bool:
    """Whether all lines have the one form and most of them the other: one that is wrong is told as such."""
    return all(map(each.fullmatch, lines)) and 2 * sum(most.search(line) is not None for line in lines) > len(lines)


KINDS: tuple[Kind[Any], ...] = (
    Kind(
        name="topology.yaml",
        about="Slurm's topology.yaml (25.05 and later): trees and blocks by name",
        looks_like=lambda text: bool(_YAML.search(_start(text))),
        parse=parse_topology_yaml,
        understood=topologies,
    ),
    Kind(
        name="scontrol-show-topology",
        about="`scontrol show topology`: switches or blocks as the running Slurm knows them",
        looks_like=_is_show_topology,
        parse=parse_show_topology,
        understood=topology,
    ),
    Kind(
        name="topology.conf",
        about="Slurm's topology.conf: switches or blocks as they are configured",
        looks_like=lambda text: bool(_TOPOLOGY_CONF.search(_start(text))),
        parse=parse_topology_conf,
        understood=topology,
    ),
    Kind(
        name="scontrol-show-node",
        about="`scontrol show node`, with -o or without: every node with its state",
        looks_like=_is_show_node,
        parse=parse_show_node,
        understood=machines,
    ),
    Kind(
        name="scontrol-show-partition",
        about="`scontrol show partition`, with -o or without",
        looks_like=_is_show_partition,
        parse=parse_show_partition,
        understood=machines,
    ),
    Kind(
        name="scontrol-show-config",
        about="`scontrol show config`: version, plugins and limits",
        looks_like=lambda text: bool(_SHOW_CONFIG.search(_start(text))),
        parse=parse_show_config,
        understood=settings,
    ),
    Kind(
        name="slurm.conf",
        about="Slurm's slurm.conf: nodes, partitions and settings as they are configured",
        looks_like=lambda text: bool(_SLURM_CONF.search(_start(text))),
        parse=parse_slurm_conf,
        understood=machines,
    ),
    Kind(
        name="slurm-json",
        about="`scontrol show node --json` or `scontrol show partition --json`",
        looks_like=looks_like_json,
        parse=parse_json_machines,
        understood=machines,
    ),
    Kind(
        name="sinfo",
        about="`sinfo`, `sinfo -N -l` or `sinfo -N -o '%N|%P|%t|%G|%f'`, with its header",
        looks_like=lambda text: any(is_header(line) for line in _lines(text)[:20]),
        parse=parse_sinfo,
        understood=machines,
    ),
    Kind(
        name="gres",
        about="GRES or TRES texts, one a line: gpu:h100:8(S:0-1)",
        looks_like=_is_gres_list,
        parse=parse_gres_lines,
        understood=expressions_of,
        mistakes=lambda found: found.mistakes,
    ),
    Kind(
        name="node-states",
        about="node states, one a line: IDLE+DRAIN",
        looks_like=_is_state_list,
        parse=parse_states,
        understood=expressions_of,
        mistakes=lambda found: found.mistakes,
    ),
    Kind(
        name="hostlist",
        about="host lists, one a line: node[01-04,07]",
        looks_like=_is_host_list,
        parse=parse_host_lists,
        understood=expressions_of,
        mistakes=lambda found: found.mistakes,
    ),
)
"""In the order in which a text is tried."""
