"""`topology.yaml` -> topologies by name (topology.yaml(5), Slurm 25.05 and later)."""

from hpcserve.site.mistakes import Mistakes, Place
from hpcserve.site.reading import nearest
from hpcserve.site.slurm_text.names import Names
from hpcserve.site.slurm_text.topology import Block, BlockList, Flat, NamedTopologies, SwitchTree, Topology
from hpcserve.site.slurm_text.topology_conf import block_list, block_sizes_of
from hpcserve.site.slurm_text.tree import Listed, tree_of
from hpcserve.site.slurm_text.yaml_values import Mapping, Scalar, Sequence, Value, read_yaml

__all__ = ["parse_topology_yaml"]

_TYPES = ("tree", "block", "flat")
_NOT_TAKEN = ("ring", "torus3d", "torus")
"""topology/ring and topology/torus3d of Slurm 26.05: hpcserve has no fabric of these shapes."""
_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})


def parse_topology_yaml(text: str, source: str) -> NamedTopologies:
    """The topologies of a topology.yaml; raises InputError with every mistake.

    The default is the first with `cluster_default: true`, as Slurm takes it, or the only one; None where several are
    there and none is marked.
    """
    mistakes = Mistakes(source)
    return _Reader(mistakes).read(read_yaml(text, mistakes))


class _Reader:
    def __init__(self, mistakes: Mistakes) -> None:
        self._mistakes = mistakes
        self._names = Names(mistakes)

    def read(self, value: Value | None) -> NamedTopologies:
        topologies: dict[str, Topology] = {}
        marked: list[str] = []
        if not isinstance(value, Sequence):
            place = value.place if value else Place(1, 1)
            self._mistakes.add(place, _kind(value), "a list of topologies was wanted", "begin with `- topology: NAME`")
            self._mistakes.check()
            return NamedTopologies(topologies={}, default=None)
        for item in value.items:
            if not isinstance(item, Mapping):
                self._wanted(item, "a topology was wanted", "begin with `- topology: NAME`")
                continue
            name = self._text(item, "topology")
            if name in topologies:
                self._wanted(item, "each topology once was wanted", "rename one of the two", f"`{name}` a second time")
            topologies[name] = self._topology(item)
            default = item.get("cluster_default")
            if default is not None and self._truth(default):
                marked.append(name)
        self._mistakes.check()
        warnings = []
        if len(marked) > 1:
            warnings.append(f"{len(marked)} topologies are marked cluster_default: Slurm takes the first, {marked[0]}")
        if not marked and len(topologies) > 1:
            warnings.append("no topology is marked cluster_default: say which one is meant")
        default_name = marked[0] if marked else next(iter(topologies)) if len(topologies) == 1 else None
        return NamedTopologies(topologies=topologies, default=default_name, warnings=tuple(warnings))

    def _topology(self, item: Mapping) -> Topology:
        self._known_keys(item, ("topology", "cluster_default", *_TYPES), refused=_NOT_TAKEN)
        kinds = [kind for kind in _TYPES if kind in item.pairs]
        if len(kinds) != 1 and not any(kind in item.pairs for kind in _NOT_TAKEN):
            found = " and ".join(kinds) or "a topology without a type"
            self._wanted(item, f"exactly one of {', '.join(_TYPES)} was wanted", "write one", found)
        if "tree" in item.pairs:
            return self._tree(item.pairs["tree"][1])
        if "block" in item.pairs:
            return self._blocks(item.pairs["block"][1])
        flat = item.get("flat")
        if isinstance(flat, Scalar):
            self._truth(flat)
        return Flat()

    def _tree(self, value: Value) -> SwitchTree:
        listed = []
        for switch in self._items(value, "switches", ("switches",)):
            self._known_keys(switch, ("switch", "children", "nodes"))
            nodes, children = self._hosts(switch, "nodes"), self._hosts(switch, "children")
            if nodes and children:
                self._wanted(switch, "nodes or children were wanted, not both", "give the nodes a leaf of their own")
            listed.append(Listed(name=self._text(switch, "switch"), nodes=nodes, children=children, place=switch.place))
        return tree_of(listed, self._mistakes)

    def _blocks(self, value: Value) -> BlockList:
        blocks = []
        for block in self._items(value, "blocks", ("block_sizes", "blocks")):
            self._known_keys(block, ("block", "nodes"))
            blocks.append((Block(name=self._text(block, "block"), nodes=self._hosts(block, "nodes")), block.place))
        sizes = value.get("block_sizes") if isinstance(value, Mapping) else None
        numbers: tuple[int, ...] = ()
        if isinstance(sizes, Sequence):
            written = ",".join(one.text if isinstance(one, Scalar) else "?" for one in sizes.items)
            numbers = block_sizes_of(written, sizes.place, self._mistakes)
        elif sizes is not None:
            self._wanted(sizes, "a list of numbers was wanted", "write them as in `block_sizes: [4, 16]`")
        return block_list(blocks, numbers, mistakes=self._mistakes, warnings=[])

    def _items(self, value: Value, key: str, known: tuple[str, ...]) -> list[Mapping]:
        if not isinstance(value, Mapping):
            self._wanted(value, f"`{key}:` was wanted", f"write `{key}:` below it")
            return []
        self._known_keys(value, known)
        listed = value.get(key)
        if isinstance(listed, Scalar) and listed.text in {"", "~", "null"}:
            return []
        if not isinstance(listed, Sequence):
            self._wanted(listed or value, f"a list of {key} was wanted", f"write `{key}: []` where there is none")
            return []
        for item in listed.items:
            if not isinstance(item, Mapping):
                self._wanted(item, "a mapping was wanted", "write `key: value` pairs")
        return [item for item in listed.items if isinstance(item, Mapping)]

    def _hosts(self, item: Mapping, key: str) -> tuple[str, ...]:
        value = item.get(key)
        if value is None or (isinstance(value, Scalar) and value.text in {"", "~", "null"}):
            return ()
        if isinstance(value, Scalar):
            return self._names.expand(value.text, value.place)
        if isinstance(value, Sequence) and all(isinstance(one, Scalar) for one in value.items):
            return tuple(
                name
                for one in value.items
                if isinstance(one, Scalar)
                for name in self._names.expand(one.text, one.place)
            )
        self._wanted(value, "a Slurm host list was wanted", f"write it as in `{key}: node[01-04]`")
        return ()

    def _text(self, item: Mapping, key: str) -> str:
        value = item.get(key)
        if isinstance(value, Scalar) and value.text:
            return value.text
        self._wanted(value or item, f"`{key}: NAME` was wanted", "give it a name")
        return ""

    def _truth(self, value: Value) -> bool:
        word = value.text.lower() if isinstance(value, Scalar) else ""
        if word not in _TRUE | _FALSE:
            self._wanted(value, "true or false was wanted", "write true or false")
        return word in _TRUE

    def _known_keys(self, item: Mapping, known: tuple[str, ...], refused: tuple[str, ...] = ()) -> None:
        for key, (place, _) in item.pairs.items():
            if key in refused:
                self._mistakes.add(
                    place,
                    f"a topology of the type `{key}`",
                    "a tree, blocks or a flat topology was wanted",
                    "describe this fabric in the site file by hand",
                )
            elif key not in known:
                self._mistakes.add(
                    place, f"unknown key `{key}`", "a key of topology.yaml was wanted", nearest(key, known, none="")
                )

    def _wanted(self, value: Value, wanted: str, remedy: str, found: str = "") -> None:
        self._mistakes.add(value.place, found or _kind(value), wanted, remedy)


def _kind(value: Value | None) -> str:
    if isinstance(value, Scalar):
        return f"`{value.text}`"
    return "a list" if isinstance(value, Sequence) else "nothing" if value is None else "a mapping"
