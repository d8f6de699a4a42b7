"""`topology.conf` -> switches or blocks (topology.conf(5))."""

from dataclasses import dataclass, field, replace

from hpcserve.site.mistakes import Mistakes, Place
from hpcserve.site.reading import nearest
from hpcserve.site.slurm_text.names import Names
from hpcserve.site.slurm_text.settings import Include, Setting, configuration
from hpcserve.site.slurm_text.topology import Block, BlockList, NamedTopologies, SwitchTree
from hpcserve.site.slurm_text.tree import Listed, tree_of

__all__ = ["block_list", "block_sizes_of", "parse_topology_conf"]

_TREE_KEYS = {"switchname": "SwitchName", "switches": "Switches", "nodes": "Nodes", "linkspeed": "LinkSpeed"}
_BLOCK_KEYS = {"blockname": "BlockName", "nodes": "Nodes", "blocksizes": "BlockSizes"}
_KNOWN = {**_TREE_KEYS, **_BLOCK_KEYS}


@dataclass(slots=True, kw_only=True)
class _Reading:
    mistakes: Mistakes
    names: Names
    switches: list[Listed] = field(default_factory=list)
    blocks: list[tuple[Block, Place]] = field(default_factory=list)
    sizes: tuple[int, ...] = ()
    sizes_place: Place | None = None
    warnings: list[str] = field(default_factory=list)


def parse_topology_conf(text: str, source: str) -> SwitchTree | BlockList | NamedTopologies:
    """The switches or blocks of a topology.conf; raises InputError with every mistake.

    A switch has nodes or switches below it, not both: Slurm refuses to start with such a file. A file may hold switches
    and blocks side by side, of which Slurm reads those of its plugin: they come back as `tree` and `block`.
    """
    mistakes = Mistakes(source)
    reading = _Reading(mistakes=mistakes, names=Names(mistakes))
    for line in configuration(text, mistakes):
        if isinstance(line, Include):
            reading.warnings.append(f"include {line.file}")
        else:
            _read(line, reading)
    tree = tree_of(reading.switches, mistakes)
    tree = replace(tree, warnings=(*reading.warnings, *tree.warnings))
    if not reading.blocks and reading.sizes_place is None:
        mistakes.check()
        return tree
    blocks = block_list(reading.blocks, reading.sizes, mistakes=mistakes, warnings=reading.warnings)
    mistakes.check()
    if not reading.switches:
        return blocks
    return NamedTopologies(
        topologies={"tree": tree, "block": blocks},
        default=None,
        warnings=("switches and blocks in one file: the TopologyPlugin in slurm.conf says which Slurm uses",),
    )


def _read(line: tuple[Setting, ...], reading: _Reading) -> None:
    head = line[0]
    values: dict[str, Setting] = {}
    for setting in line:
        if setting.name not in _KNOWN:
            reading.mistakes.add(
                setting.place,
                f"unknown key `{setting.key}`",
                "a key of topology.conf was wanted",
                nearest(setting.key, _KNOWN.values(), none=""),
            )
        elif setting.name in values:
            reading.mistakes.add(
                setting.place, f"`{setting.key}` a second time", "each key once in a line was wanted", "remove one"
            )
        else:
            values[setting.name] = setting
    if "switchname" in values:
        _read_switch(values, reading)
    elif "blockname" in values:
        _read_block(values, reading)
    elif "blocksizes" not in values and any(setting.name in _KNOWN for setting in line):
        reading.mistakes.add(
            head.place, "a line without a name", "`SwitchName=` or `BlockName=` was wanted", "begin the line with it"
        )
    if "blocksizes" in values:
        reading.sizes_place = values["blocksizes"].place
        reading.sizes = block_sizes_of(values["blocksizes"].value, values["blocksizes"].value_place, reading.mistakes)


def _read_switch(values: dict[str, Setting], reading: _Reading) -> None:
    head = values["switchname"]
    nodes, switches = values.get("nodes"), values.get("switches")
    if nodes and switches:
        reading.mistakes.add(
            switches.place,
            f"switch `{head.value}` with both `Nodes=` and `Switches=`",
            "one of the two was wanted",
            "give the nodes a leaf switch of their own, or remove them",
        )
    names = reading.names.expand(head.value, head.value_place)
    below = reading.names.expand(nodes.value, nodes.value_place) if nodes else ()
    children = reading.names.expand(switches.value, switches.value_place) if switches else ()
    if len(names) > 1:
        reading.mistakes.add(
            head.value_place, f"{len(names)} names", "one switch a line was wanted", "write one line for each"
        )
    elif names:
        reading.switches.append(Listed(name=names[0], nodes=below, children=children, place=head.place))


def _read_block(values: dict[str, Setting], reading: _Reading) -> None:
    head, nodes = values["blockname"], values.get("nodes")
    below = reading.names.expand(nodes.value, nodes.value_place) if nodes else ()
    reading.blocks.append((Block(name=head.value, nodes=below), head.place))


def block_sizes_of(text: str, place: Place, mistakes: Mistakes) -> tuple[int, ...]:
    """`4,16` -> numbers of nodes; anything else is a mistake."""
    sizes = text.split(",")
    if all(size.isascii() and size.isdigit() and len(size) < 7 and int(size) > 0 for size in sizes):  # noqa: PLR2004
        return tuple(int(size) for size in sizes)
    mistakes.add(place, f"`{text}`", "numbers of nodes were wanted", "write them as in BlockSizes=4,16")
    return ()


def block_list(
    blocks: list[tuple[Block, Place]], sizes: tuple[int, ...], *, mistakes: Mistakes, warnings: list[str]
) -> BlockList:
    """Blocks as one list; a name twice and a node in two blocks are mistakes."""
    places: dict[str, Place] = {}
    block_of: dict[str, str] = {}
    for block, place in blocks:
        if block.name in places:
            mistakes.add(
                place,
                f"block `{block.name}` a second time",
                f"each block once was wanted, it is already on line {places[block.name].line}",
                "remove one of the two, or correct its name",
            )
        places.setdefault(block.name, place)
        double = [node for node in block.nodes if block_of.setdefault(node, block.name) != block.name]
        if double:
            mistakes.add(
                place,
                f"node `{double[0]}` in block `{block.name}`",
                f"each node in one block was wanted, it is already in `{block_of[double[0]]}`",
                "remove it from one of the two",
            )
        if not block.nodes:
            warnings.append(f"block {block.name} has no nodes")
    if not blocks:
        warnings.append("no block is named")
    return BlockList(blocks=tuple(block for block, _ in blocks), block_sizes=sizes, warnings=tuple(warnings))
