"""`scontrol show topology` -> switches, blocks, or nothing; of Slurm 20 to 26."""

import re

from hpcserve.site.mistakes import Mistakes, Place
from hpcserve.site.slurm_text.names import Names
from hpcserve.site.slurm_text.settings import Setting, printed
from hpcserve.site.slurm_text.topology import Block, BlockList, Flat, SwitchTree
from hpcserve.site.slurm_text.topology_conf import block_list
from hpcserve.site.slurm_text.tree import Listed, tree_of

__all__ = ["NO_TOPOLOGY", "parse_show_topology"]

_HEADS = frozenset({"SwitchName", "BlockName", "AggregatedBlock"})
_OTHERS = re.compile(r"^[ \t]{0,99}((?:Ring|Torus)\w{0,20})=", re.MULTILINE)
"""Records of topology/ring and topology/torus3d, which came with Slurm 26.05."""
NO_TOPOLOGY = re.compile(r"no topology information|topology information is not available", re.IGNORECASE)
"""What scontrol says where the topology plugin has nothing to show."""


def parse_show_topology(text: str, source: str) -> SwitchTree | BlockList | Flat:
    """What `scontrol show topology` prints; raises InputError with every mistake.

    `Nodes=` of an upper switch are all nodes below it (Slurm 22.05 and later; earlier ones leave it out), and an
    aggregated block is a union of blocks, not another one. Slurm prints records by level, and people paste several
    into one line: a record begins with its first key, wherever that stands.
    """
    mistakes = Mistakes(source)
    names = Names(mistakes)
    switches: list[Listed] = []
    blocks: list[tuple[Block, Place]] = []
    sizes: set[int] = set()
    if other := _OTHERS.search(text):
        line = text.count("\n", 0, other.start(1)) + 1
        mistakes.add(
            Place(line, 1),
            f"a record `{other[1]}=`",
            "a tree, blocks or a flat topology was wanted",
            "describe this fabric in the site file by hand",
        )
    for record in printed(text, _HEADS):
        values: dict[str, Setting] = {}
        for setting in record:
            values.setdefault(setting.key, setting)
        head = record[0]
        if head.key == "SwitchName":
            children = _expand(values.get("Switches"), names)
            switches.append(
                Listed(
                    name=head.value,
                    nodes=_expand(values.get("Nodes"), names),
                    children=children,
                    place=head.place,
                    below=bool(children),
                )
            )
        else:
            if "BlockSize" in values and (size := _number(values["BlockSize"], mistakes)):
                sizes.add(size)
            if head.key == "BlockName":
                blocks.append((Block(name=head.value, nodes=_expand(values.get("Nodes"), names)), head.place))
    if switches and blocks:
        mistakes.add(
            switches[0].place, "switches and blocks in one text", "one of the two was wanted", "import one at a time"
        )
    mistakes.check()
    result: SwitchTree | BlockList | Flat
    if blocks:
        result = block_list(blocks, tuple(sorted(sizes)), mistakes=mistakes, warnings=[])
    elif switches:
        result = tree_of(switches, mistakes)
    elif NO_TOPOLOGY.search(text):
        result = Flat(warnings=("Slurm has no topology to show",))
    else:
        mistakes.add(
            Place(1, 1), "no switch and no block", "what `scontrol show topology` prints was wanted", "collect it again"
        )
        result = Flat()
    mistakes.check()
    return result


def _expand(setting: Setting | None, names: Names) -> tuple[str, ...]:
    if setting is None or setting.value in {"", "(null)"}:
        return ()
    return names.expand(setting.value, setting.value_place)


def _number(setting: Setting, mistakes: Mistakes) -> int | None:
    if setting.value.isascii() and setting.value.isdigit() and len(setting.value) < 7:  # noqa: PLR2004
        return int(setting.value)
    mistakes.add(setting.value_place, f"`{setting.value}`", "a number of nodes was wanted", "collect the text again")
    return None
