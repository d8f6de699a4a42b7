"""A draft in the file's own words: what the admin calls a node type or a switch is kept."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpcserve.site.hostlist import expand_hosts, fold_hosts
from hpcserve.site.learning.align_groups import grouped
from hpcserve.site.learning.divide_groups import divided
from hpcserve.site.learning.division import Division
from hpcserve.site.learning.draft import Draft
from hpcserve.site.learning.drafted_groups import drafted_groups, expanded
from hpcserve.site.learning.leaves import Branch, Items, Known, Node
from hpcserve.site.learning.offers import offers_left, with_offers
from hpcserve.site.reading import items_of, pairs_of, text_at

__all__ = ["Aligned", "aligned"]

Record = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """The draft under the file's names, and the record of what was learnt before under them too."""

    draft: Draft
    record: Record
    division: Division
    """What is to be done to the groups of the file before the draft is merged into it."""


def aligned(draft: Draft, site: Any, record: Record, *, take: Collection[str] = ()) -> Aligned:
    """The draft with the names that the site (plain data, wrong in any way) has for the same hosts.

    `take` is `--take`: a group of nodes that it names is divided as Slurm divides it.
    """
    branch = dict(draft.branch)
    notes = list(draft.notes)
    renames: dict[str, str] = {}
    types = _types_by_hosts(draft, site)
    division = Division(record=record)
    renames |= {f"node_types.{old}": f"node_types.{new}" for old, new in types.items()}
    node_types, nodes, switches = (branch.get(key) for key in ("node_types", "nodes", "switches"))
    if isinstance(node_types, Items) and isinstance(nodes, Items):
        groups = drafted_groups(nodes.items, types)
        division = divided(groups, site, record, take=take)
        site, record = division.of(site), division.record
        found = grouped(groups, site, record)
        renames |= {f"nodes[{old}]": f"nodes[{new}]" for old, new in found.labels.items()}
        notes += found.notes
        branch["nodes"] = replace(nodes, items=found.groups)
        used = {known.value for group in found.groups.values() if isinstance(known := group["type"], Known)}
        named: dict[str, Branch] = {}
        for drafted, kind in node_types.items.items():
            name, offered = types[drafted], draft.offered_nics.get(drafted, {})
            named[name] = with_offers(kind, offered, name=name, site=site, take=take)
            notes += offers_left(named[name], offered, name=name)
        branch["node_types"] = replace(node_types, items={name: item for name, item in named.items() if name in used})
    chosen = [text_at(site, "networks", name, key) for name in ("control", "data") for key in ("interface", "subnet")]
    if draft.interfaces and not any(chosen):
        notes.append(f"for `networks`: {draft.interfaces}")
    if isinstance(switches, Items):
        items, called = _switches(switches, site)
        renames |= {f"switches[{old}]": f"switches[{new}]" for old, new in called.items()}
        branch["switches"] = replace(switches, items=items)
    return Aligned(
        draft=replace(draft, branch=branch, notes=tuple(notes)),
        record=_renamed(record, _only_new(renames, record)),
        division=division,
    )


def _only_new(renames: Mapping[str, str], record: Record) -> dict[str, str]:
    return {
        old: new
        for old, new in renames.items()
        if old != new and not any(key.startswith((f"{new}.", f"{new}[")) for key in record)
    }


def _renamed(record: Record, renames: Mapping[str, str]) -> Record:
    renamed: dict[str, Any] = {}
    for key, value in record.items():
        old = next((old for old in renames if key.startswith((f"{old}.", f"{old}["))), None)
        renamed[key if old is None else renames[old] + key[len(old) :]] = value
    return renamed


def _types_by_hosts(draft: Draft, site: Any) -> dict[str, str]:
    """For each drafted type its name: the file's type that most of its hosts have, each once, else its own."""
    groups = [(text_at(group, "type"), expanded(text_at(group, "hosts"))) for _, group in items_of(site, "nodes")]
    found: dict[str, str] = {}
    for name, hosts in draft.hosts_of_type.items():
        shares: dict[str, int] = {}
        for type_name, members in groups:
            common = len(members.intersection(hosts))
            if type_name is not None and common and type_name not in found.values():
                shares[type_name] = shares.get(type_name, 0) + common
        if shares:
            found[name] = max(shares, key=lambda one: shares[one])
    left = [name for name in draft.hosts_of_type if name not in found]
    bare = [name for name, _ in pairs_of(site, "node_types") if name not in {type_name for type_name, _ in groups}]
    if len(left) == len(bare) == 1:
        # The admin has described the one kind of node before any node of it was known.
        found[left[0]] = bare[0]
    for name in draft.hosts_of_type:
        if name not in found:
            found[name] = f"{name}-new" if name in found.values() else name
    return found


def _value(node: Node | None) -> tuple[str, ...]:
    return expand_hosts(node.value) if isinstance(node, Known) and node.value else ()


def _switches(switches: Items, site: Any) -> tuple[dict[str, Branch], dict[str, str]]:
    """Drafted switches by the file's names for those with the same hosts or switches, and these by the drafted."""
    own = dict(_own_switches(site))
    by_members = {members: name for name, members in own.items()}
    renamed: dict[str, str] = {}
    result: dict[str, Branch] = {}
    # Leaves come before what is above them.
    for name, branch in switches.items.items():
        changed: dict[str, Node] = dict(branch)
        children = branch.get("switches")
        if isinstance(children, Known):
            inner = [renamed.get(child, child) for child in _value(children)]
            changed["switches"] = replace(children, value=fold_hosts(inner))
        members = frozenset(_value(changed.get("switches")) or _value(changed.get("hosts")))
        called = name if name in own else by_members.get(members, name)
        if called in switches.items and called != name:
            called = name
        renamed[name] = called
        label = changed["name"]
        if isinstance(label, Known):
            changed["name"] = replace(label, value=called)
        result[called] = changed
    return result, renamed


def _own_switches(site: Any) -> Iterator[tuple[str, frozenset[str]]]:
    for _, switch in items_of(site, "switches"):
        name = text_at(switch, "name")
        members = expanded(text_at(switch, "switches")) or expanded(text_at(switch, "hosts"))
        if name is not None and members:
            yield name, members
