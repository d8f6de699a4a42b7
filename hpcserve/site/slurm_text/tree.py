"""Switches as a text lists them -> a tree, whatever their order."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hpcserve.site.mistakes import Mistakes, Place
from hpcserve.site.reading import first_of
from hpcserve.site.slurm_text.topology import SwitchNode, SwitchTree

__all__ = ["Listed", "tree_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One switch as a text lists it.

    `below`: whether `nodes` are all that are below the switch (as scontrol prints for upper ones), not its own.
    """

    name: str
    nodes: tuple[str, ...]
    children: tuple[str, ...]
    place: Place
    below: bool = False


def tree_of(listed: Iterable[Listed], mistakes: Mistakes) -> SwitchTree:
    """The tree; a name twice, two parents and loops are mistakes, the rest that is odd is a warning of the tree.

    Switches with the same children, such as the spines of one layer, become one: the first of them.
    """
    warnings: list[str] = []
    switches = _without_twins(_once(listed, mistakes), warnings)
    undefined = _undefined(switches, mistakes.source, warnings)
    switches, unplaced = _own_nodes(switches, set(undefined), warnings)
    undefined = tuple(name for name in undefined if name not in switches)
    known_children = {
        name: tuple(child for child in switch.children if child in switches) for name, switch in switches.items()
    }
    parents = _parents(switches, known_children, mistakes)
    levels = _levels(switches, known_children, parents, mistakes)
    roots = tuple(name for name in switches if name not in parents)
    _empty_and_double(switches, warnings)
    if len(roots) > 1:
        warnings.append(f"no common root: {len(roots)} roots")
    if not switches:
        warnings.append("no switch is named")
    return SwitchTree(
        switches=tuple(
            SwitchNode(name=name, nodes=switch.nodes, children=known_children[name], level=levels.get(name, 0))
            for name, switch in switches.items()
        ),
        roots=roots,
        undefined_children=undefined,
        unplaced=unplaced,
        warnings=tuple(warnings),
    )


def _once(listed: Iterable[Listed], mistakes: Mistakes) -> dict[str, Listed]:
    switches: dict[str, Listed] = {}
    for switch in listed:
        if switch.name in switches:
            first = switches[switch.name].place.line
            mistakes.add(
                switch.place,
                f"switch `{switch.name}` a second time",
                f"each switch once was wanted, it is already on line {first}",
                "remove one of the two, or correct its name",
            )
        else:
            switches[switch.name] = switch
    return switches


def _without_twins(switches: dict[str, Listed], warnings: list[str]) -> dict[str, Listed]:
    """One switch for all with the same children: Slurm takes such a file, and the way through any is as long."""
    first_with: dict[frozenset[str], str] = {}
    twin_of: dict[str, str] = {}
    for name, switch in switches.items():
        if switch.children:
            first = first_with.setdefault(frozenset(switch.children), name)
            if first != name:
                twin_of[name] = first
    if not twin_of:
        return switches
    for first in dict.fromkeys(twin_of.values()):
        twins = [name for name, of in twin_of.items() if of == first]
        warnings.append(f"{first_of(twins)} with the same children as switch {first}: taken as one switch")
    return {
        name: replace(switch, children=tuple(dict.fromkeys(twin_of.get(child, child) for child in switch.children)))
        for name, switch in switches.items()
        if name not in twin_of
    }


def _undefined(switches: Mapping[str, Listed], source: str, warnings: list[str]) -> tuple[str, ...]:
    undefined: dict[str, None] = {}
    for switch in switches.values():
        missing = [child for child in switch.children if child not in switches]
        undefined.update(dict.fromkeys(missing))
        if missing:
            warnings.append(
                f"{source}:{switch.place.line}: switch {switch.name} has children that are not defined: "
                f"{first_of(missing)}"
            )
    return tuple(undefined)


def _own_nodes(
    switches: dict[str, Listed], undefined: set[str], warnings: list[str]
) -> tuple[dict[str, Listed], tuple[str, ...]]:
    """Each switch with its own nodes only, and the nodes whose leaf is not said.

    Where one child has no record, it is the leaf of those nodes below its parent that no other switch has.
    """
    placed = {node for switch in switches.values() if not switch.below for node in switch.nodes}
    own = {name: replace(switch, nodes=()) if switch.below else switch for name, switch in switches.items()}
    unplaced: dict[str, None] = {}
    # The smallest first: what is below a switch is also below those above it.
    for switch in sorted((one for one in switches.values() if one.below), key=lambda one: len(one.nodes)):
        left = tuple(node for node in switch.nodes if node not in placed)
        if not left:
            continue
        placed.update(left)
        unknown = [child for child in switch.children if child in undefined and child not in own]
        if len(unknown) == 1:
            own[unknown[0]] = Listed(name=unknown[0], nodes=left, children=(), place=switch.place)
            warnings.append(
                f"switch {unknown[0]} has no record of its own: taken as the leaf of {first_of(left)}, "
                f"which {switch.name} has below it and no other leaf has"
            )
        else:
            unplaced.update(dict.fromkeys(left))
            warnings.append(f"the leaf of {first_of(left)} below switch {switch.name} is not said")
    return own, tuple(unplaced)


def _parents(
    switches: Mapping[str, Listed], children: Mapping[str, tuple[str, ...]], mistakes: Mistakes
) -> dict[str, str]:
    parents: dict[str, str] = {}
    for name, below in children.items():
        for child in dict.fromkeys(below):
            if child in parents:
                mistakes.add(
                    switches[name].place,
                    f"switch `{child}` below `{name}`",
                    f"one parent of each switch was wanted, it is already below `{parents[child]}`",
                    "name it below one of the two",
                )
            else:
                parents[child] = name
    return parents


def _levels(
    switches: Mapping[str, Listed],
    children: Mapping[str, tuple[str, ...]],
    parents: Mapping[str, str],
    mistakes: Mistakes,
) -> dict[str, int]:
    """The level of each switch; those on or above a loop have none, and each loop is one mistake."""
    levels: dict[str, int] = {}
    waiting = {name: len(set(below)) for name, below in children.items()}
    ready = [name for name, count in waiting.items() if count == 0]
    while ready:
        name = ready.pop()
        levels[name] = max((levels[child] + 1 for child in children[name]), default=0)
        parent = parents.get(name)
        if parent is not None:
            waiting[parent] -= 1
            if waiting[parent] == 0:
                ready.append(parent)
    told: set[str] = set()
    for name in switches:
        path: list[str] = []
        here: str | None = name if name not in levels else None
        while here is not None and here not in told:
            told.add(here)
            path.append(here)
            here = parents.get(here)
        if here is not None and here in path:
            loop = path[path.index(here) :]
            mistakes.add(
                switches[here].place,
                f"switch `{here}` is below itself: {' < '.join((*loop[:6], here))}",
                "a tree was wanted",
                "remove one of these from the `Switches=` of another",
            )
    return levels


def _empty_and_double(switches: Mapping[str, Listed], warnings: list[str]) -> None:
    leaf_of: dict[str, str] = {}
    double: dict[tuple[str, str], list[str]] = {}
    for name, switch in switches.items():
        if not switch.nodes and not switch.children:
            warnings.append(f"switch {name} has no nodes")
        for node in switch.nodes:
            first = leaf_of.setdefault(node, name)
            if first != name:
                double.setdefault((first, name), []).append(node)
    warnings.extend(f"{first_of(nodes)} in both switch {one} and switch {two}" for (one, two), nodes in double.items())
