"""What Slurm knows of its network: a tree of switches, blocks, or nothing; one of them or several by name."""

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Block", "BlockList", "Flat", "NamedTopologies", "SwitchNode", "SwitchTree", "Topology", "topology_plugin"]

_PLUGINS = {
    "topology/tree": "tree",
    "topology/block": "block",
    "topology/flat": "flat",
    "topology/default": "flat",
    "topology/none": "flat",
}
"""topology/flat was called topology/default, and topology/none before Slurm 23.11."""


def topology_plugin(printed: str | None) -> str | None:
    """`tree`, `block` or `flat`, for what `scontrol show config` prints as TopologyPlugin.

    None for another plugin, and where none is set: it prints `(null)`, and topology.yaml may name one.
    """
    return _PLUGINS.get((printed or "").lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchNode:
    """One switch of a tree. `nodes` are those plugged into it, never those further below; only a leaf has any."""

    name: str
    nodes: tuple[str, ...]
    children: tuple[str, ...]
    level: int
    """0 for a leaf, else one more than the highest of its children."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchTree:
    """topology/tree: switches in the order in which they were named. Several roots are trees of their own."""

    switches: tuple[SwitchNode, ...]
    roots: tuple[str, ...]
    undefined_children: tuple[str, ...] = ()
    """Switches that are named as children and defined nowhere: nobody knows what is below them."""
    unplaced: tuple[str, ...] = ()
    """Nodes below some upper switch whose leaf the text does not say."""
    warnings: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node once, leaf by leaf."""
        return tuple(dict.fromkeys(node for switch in self.switches for node in switch.nodes))

    @property
    def leaves(self) -> Iterator[SwitchNode]:
        """The switches that have no switch below them."""
        return (switch for switch in self.switches if switch.level == 0 and not switch.children)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One base block of topology/block."""

    name: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockList:
    """topology/block. `block_sizes`: nodes of a base block, then of each aggregate; empty where it is not said."""

    blocks: tuple[Block, ...]
    block_sizes: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node once, block by block."""
        return tuple(dict.fromkeys(node for block in self.blocks for node in block.nodes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """topology/flat: Slurm takes all nodes as equally near."""

    warnings: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """None: a flat topology names no node."""
        return ()


Topology = SwitchTree | BlockList | Flat


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedTopologies:
    """topology.yaml: topologies by name, and the one that partitions have which name none; None where there is none."""

    topologies: dict[str, Topology]
    default: str | None
    warnings: tuple[str, ...] = ()
