"""Groups of the file that are divided as Slurm tells their nodes apart, before anything else is merged.

Each host of the file stays in exactly one group: a group is divided in its place, its parts are new groups or join one
of exactly their kind, and no group that the admin holds to gets or loses a node.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hpcserve.site.learning.division import Division
from hpcserve.site.learning.draft import group_label
from hpcserve.site.learning.drafted_groups import DraftedGroup, expanded, folded
from hpcserve.site.learning.learnt_record import is_below
from hpcserve.site.reading import items_of, text_at

__all__ = ["Part", "divided", "first_part", "is_learnt"]

_OWN = ("hosts", "type", "features")
"""What an import writes of a group."""


Part = tuple[DraftedGroup, list[str]]
"""Some hosts, and how Slurm groups them."""


@dataclass(kw_only=True)
class _Row:
    """One group of the file."""

    place: int
    item: Mapping[str, Any]
    label: str
    hosts: frozenset[str]
    parts: list[Part]
    """Its hosts by what Slurm says of them; those that Slurm does not know are in none."""
    learnt: bool
    taken: frozenset[str]
    told: bool
    """Whether Slurm tells features of any node, so that none told of a node is a word too."""
    words: dict[str, Any] = field(default_factory=dict)

    @property
    def follows(self) -> bool:
        """Whether it is as an import wrote it, or is to be divided by `--take`."""
        return self.learnt or bool(self.taken)

    @property
    def label_then(self) -> str:
        """Its label after the division."""
        return group_label({**self.item, **self.words})


def divided(
    drafted: Iterable[DraftedGroup], site: Any, record: Mapping[str, Any], *, take: Collection[str]
) -> Division:
    """How the groups of a site (plain data, wrong in any way) are divided where they were learnt or `take` names them.

    Of a divided group the part that has its label, else the largest, keeps its place. Each part gets the features that
    Slurm tells of it and no others, unless Slurm tells none of any node.
    """
    drafted = list(drafted)
    rows = list(_rows(drafted, site, record, take))
    used: set[str] = set()
    loose: list[tuple[_Row, DraftedGroup, list[str]]] = []
    for row in rows:
        if row.follows and len(row.parts) > 1:
            loose += _divide(row)
            used |= row.taken
        elif row.parts:
            used |= _follow(row, take)
    gone = _joined(rows)
    loose += _new(drafted, rows)
    added: dict[str, tuple[_Row, dict[str, Any]]] = {}
    for row, kind, hosts in loose:
        like = [
            one
            for one in rows
            if one.follows and one.place not in gone and _kinds(one) == [kind.label]
            if one.label_then == kind.named or (one.learnt and row.learnt)
        ]
        if len(like) == 1:
            _join(like[0], kind, hosts)
        elif kind.label in added:
            words = added[kind.label][1]
            words["hosts"] = folded([*expanded(words["hosts"]), *hosts])
        else:
            added[kind.label] = row, {**_words(row, kind), "hosts": folded(hosts)}
    after = Counter([row.label_then for row in rows if row.place not in gone])
    after.update(group_label({**row.item, **words}) for row, words in added.values())
    # what is known of a label is known of the group that has it before and after
    same = {row.label for row in rows if row.place not in gone and row.label_then == row.label}
    stale = [f"nodes[{label}]" for label in {row.label for row in rows}.union(after) - same]
    now = {key: value for key, value in record.items() if not any(is_below(key, path) for path in stale)}
    for row, words in [
        *((row, row.words) for row in rows if row.words and row.place not in gone),
        *added.values(),
    ]:
        said = {**row.item, **words}
        label = group_label(said)
        if row.learnt and after[label] == 1:
            now |= {f"nodes[{label}].{key}": said[key] for key in _OWN if said.get(key) is not None}
    return Division(
        changed={row.place: row.words for row in rows if row.words and row.place not in gone},
        added=tuple((row.place, words) for row, words in added.values()),
        gone=gone,
        record=now,
        taken=frozenset(used),
    )


def is_learnt(item: Mapping[str, Any], record: Mapping[str, Any]) -> bool:
    """Whether a group says nothing but what an import wrote, in whatever way its hosts are written."""
    label, hosts = group_label(item), expanded(item.get("hosts"))
    return (
        bool(hosts)
        and set(item) <= set(_OWN)
        and expanded(record.get(f"nodes[{label}].hosts")) == hosts
        and record.get(f"nodes[{label}].type") == item.get("type")
        and (record.get(f"nodes[{label}].features") or []) == (item.get("features") or [])
    )


def _rows(
    drafted: Iterable[DraftedGroup], site: Any, record: Mapping[str, Any], take: Collection[str]
) -> Iterator[_Row]:
    drafted = list(drafted)
    told = any(one.features for one in drafted)
    kinds = {host: one for one in drafted for host in one.hosts}
    groups = [(place, item) for place, item in items_of(site, "nodes") if isinstance(item, Mapping)]
    counts = Counter(group_label(item) for _, item in groups)
    for place, item in groups:
        label, hosts = group_label(item), expanded(text_at(item, "hosts"))
        parts: dict[str, tuple[DraftedGroup, list[str]]] = {}
        for host in sorted(hosts.intersection(kinds)):
            parts.setdefault(kinds[host].label, (kinds[host], []))[1].append(host)
        yield _Row(
            place=place,
            item=item,
            label=label,
            hosts=hosts,
            parts=list(parts.values()),
            learnt=counts[label] == 1 and is_learnt(item, record),
            taken=_taken(f"nodes[{label}]", take),
            told=told,
        )


def _taken(path: str, take: Collection[str]) -> frozenset[str]:
    return frozenset(one for one in take if one == "all" or is_below(path, one))


def _features(item: Mapping[str, Any]) -> frozenset[str]:
    said = item.get("features")
    return frozenset(map(str, said)) if isinstance(said, list | tuple) else frozenset()


def _divide(row: _Row) -> Iterator[tuple[_Row, DraftedGroup, list[str]]]:
    """Leave a group one part of its nodes; the others."""
    first = first_part(row.parts, row.label)
    rest = [(row, kind, hosts) for kind, hosts in row.parts if kind.label != first[0].label]
    row.words = {**_words(row, first[0]), "hosts": folded(first[1])}
    row.parts = [first]
    return iter(rest)


def first_part(parts: Collection[Part], label: str) -> Part:
    """Of the parts of a group with a label, that which has the label, else the largest."""
    return next((part for part in parts if part[0].named == label), max(parts, key=lambda part: len(part[1])))


def _words(row: _Row, kind: DraftedGroup) -> dict[str, Any]:
    """What a part of a group says of its kind, as far as it says other than the group."""
    words: dict[str, Any] = {} if row.item.get("type") == kind.type_name else {"type": kind.type_name}
    if row.told and _features(row.item) != set(kind.features):
        words["features"] = list(kind.features) or None
    return words


def _follow(row: _Row, take: Collection[str]) -> frozenset[str]:
    """Let Slurm's word into a group of one kind, learnt or taken; the keys of `--take` that did.

    That is done here as the merge takes groups with one label for one.
    """
    kind = row.parts[0][0]
    used: set[str] = set()
    wanted: dict[str, Any] = {"type": kind.type_name}
    if kind.features and set(kind.features) != _features(row.item):
        wanted["features"] = list(kind.features)
    elif row.told and not kind.features and row.learnt:
        wanted["features"] = None
    for key, value in wanted.items():
        taken = _taken(f"nodes[{row.label}].{key}", take)
        if len(row.parts) == 1 and (taken or row.learnt) and row.item.get(key) != value:
            row.words[key] = value
            used |= taken
    return frozenset(used)


def _kinds(row: _Row) -> list[str]:
    return [kind.label for kind, _ in row.parts]


def _joined(rows: Collection[_Row]) -> frozenset[int]:
    """Join learnt groups that Slurm no longer tells apart; the places of those that then have no node that it knows."""
    gone = {row.place for row in rows if row.learnt and not row.parts}
    learnt: dict[str, list[_Row]] = {}
    for row in rows:
        if row.learnt and len(row.parts) == 1:
            learnt.setdefault(row.parts[0][0].label, []).append(row)
    for alike in learnt.values():
        kind = alike[0].parts[0][0]
        into = next((row for row in alike if row.label_then == kind.named), alike[0])
        for row in alike:
            if row is not into:
                _join(into, kind, row.parts[0][1])
                gone.add(row.place)
    return frozenset(gone)


def _new(drafted: Iterable[DraftedGroup], rows: Collection[_Row]) -> Iterator[tuple[_Row, DraftedGroup, list[str]]]:
    """Nodes that stand nowhere, and that have the label of a group which is to be divided and is of another kind."""
    held = {host for row in rows for host in row.hosts}
    for kind in drafted:
        hosts = [host for host in kind.hosts if host not in held]
        alike = [row for row in rows if row.label_then == kind.named]
        if hosts and len(alike) == 1 and alike[0].taken and _kinds(alike[0]) not in ([], [kind.label]):
            yield alike[0], kind, hosts


def _join(row: _Row, kind: DraftedGroup, hosts: list[str]) -> None:
    joined = [*row.parts[0][1], *hosts]
    row.parts = [(kind, joined)]
    row.words["hosts"] = folded(joined)
