"""Drafted groups of nodes as the file groups them: a node that stands in a group of the file stays there."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hpcserve.site.learning.divide_groups import Part, first_part, is_learnt
from hpcserve.site.learning.draft import group_label
from hpcserve.site.learning.drafted_groups import DraftedGroup, expanded, folded
from hpcserve.site.learning.leaves import Branch, Known
from hpcserve.site.reading import items_of, text_at

__all__ = ["Grouped", "grouped"]


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """Groups by the labels that they have in the file."""

    groups: Mapping[str, Branch]
    labels: Mapping[str, str]
    """For each drafted label the file's."""
    notes: tuple[str, ...]


@dataclass(kw_only=True)
class _Own:
    """One group of the file, or several with the same type and features."""

    type_name: str | None
    learnt: bool
    """Whether it is as an import wrote it."""
    hosts: frozenset[str] = frozenset()
    several: bool = False
    mixed: bool = False
    """Whether Slurm tells nodes of one group apart."""
    shares: dict[str, list[str]] = field(default_factory=dict)
    """The hosts that it has of each drafted group, by that one's label."""


def grouped(groups: Collection[DraftedGroup], site: object, record: Mapping[str, Any]) -> Grouped:
    """Drafted groups under the file's labels, where what was to be divided is divided.

    A group of the file keeps its hosts together although Slurm tells some apart; of its features only those are Slurm's
    word that all of its nodes have. Only a node that stands in no group of the file goes to one.
    """
    by_label = {one.label: one for one in groups}
    own = _own_groups(site, groups, record)
    held = {host for group in own.values() for host in group.hosts}
    new = {one.label: [host for host in one.hosts if host not in held] for one in groups}
    grows = _growing(groups, own)
    placed: dict[str, Branch] = {}
    labels: dict[str, str] = {}
    notes: list[str] = []
    for label, group in own.items():
        parts = [(by_label[name], hosts) for name, hosts in group.shares.items()]
        joining = [(by_label[name], new[name]) for name, into in grows.items() if into == label and new[name]]
        if group.several:
            notes += [
                f"{folded(hosts)} are like the nodes of `{label}`, several groups of the file: add them to one"
                for _, hosts in joining
            ]
        else:
            parts += joining
        if parts:
            first = first_part(parts, label)[0]
            if first.named == label or first.label not in labels:
                labels[first.label] = label
            placed[label] = _merged(group, first, parts)
            notes += _apart(label, group, first, parts)
        elif group.hosts and not group.learnt:
            notes.append(
                f"the group `{label}` of the file has no node with GPUs by what was read, and is kept:"
                f" {folded(group.hosts)}; remove it by hand where it is gone"
            )
    for one in groups:
        if one.label not in grows and new[one.label]:
            labels.setdefault(one.label, one.named)
            placed[one.named] = {**one.branch, "hosts": _hosts(new[one.label])}
    return Grouped(groups=placed, labels=labels, notes=tuple(notes))


def _own_groups(site: object, groups: Collection[DraftedGroup], record: Mapping[str, Any]) -> dict[str, _Own]:
    kinds = {host: one.label for one in groups for host in one.hosts}
    own: dict[str, _Own] = {}
    for _, item in items_of(site, "nodes"):
        if not isinstance(item, Mapping):
            continue
        label, hosts = group_label(item), expanded(text_at(item, "hosts"))
        group = own.setdefault(label, _Own(type_name=text_at(item, "type"), learnt=is_learnt(item, record)))
        group.several, group.hosts = bool(group.hosts), group.hosts | hosts
        shares: dict[str, list[str]] = {}
        for host, kind in kinds.items():
            if host in hosts:
                shares.setdefault(kind, []).append(host)
        group.mixed |= len(shares) > 1
        for name, some in shares.items():
            group.shares.setdefault(name, []).extend(some)
    return own


def _growing(groups: Iterable[DraftedGroup], own: Mapping[str, _Own]) -> dict[str, str]:
    """For each drafted group that is most of one of the file, or has its label, that one: its new nodes go there.

    Which of them they join is the admin's to say, so that they are told as a difference of its hosts.
    """
    grows: dict[str, str] = {}
    for one in groups:
        shares = {
            label: len(group.shares[one.label])
            for label, group in own.items()
            if not group.several
            and one.label in group.shares
            and one.label == max(group.shares, key=lambda name: len(group.shares[name]))
        }
        if one.named in own:
            grows[one.label] = one.named
        elif shares:
            grows[one.label] = max(shares, key=lambda label: shares[label])
    return grows


def _merged(group: _Own, first: DraftedGroup, parts: Collection[Part]) -> Branch:
    """A group of the file as far as Slurm's word goes for all of its nodes.

    Hosts that are the file's are left out where Slurm groups them otherwise: that they are one group was not learnt. Of
    several groups with one label nothing is said but their type: what differs of one is not to be written to another.
    """
    branch = dict(first.branch)
    features = branch.pop("features", None)
    hosts = {host for _, some in parts for host in some}
    if group.several or (hosts == group.hosts and hosts != set(first.hosts)):
        del branch["hosts"]
    else:
        branch["hosts"] = _hosts(hosts)
    common = _common(first, parts)
    if group.several:
        return {**branch, "type": Known(value=group.type_name, source="the file")}
    if common and isinstance(features, Known):
        branch["features"] = replace(features, value=common)
    return branch


def _common(first: DraftedGroup, parts: Collection[Part]) -> list[str]:
    """The features that all parts of a group have."""
    return [feature for feature in first.features if all(feature in one.features for one, _ in parts)]


def _apart(label: str, group: _Own, first: DraftedGroup, parts: Collection[Part]) -> Iterator[str]:
    """What Slurm tells apart in a group of the file, or says of several that only `--take` writes to each."""
    others: dict[str, list[str]] = {}
    for one, hosts in parts:
        if one.label != first.label:
            others.setdefault(one.named, []).extend(hosts)
    divide = f"; --take 'nodes[{label}]' divides it" if group.mixed else ""
    for named, hosts in others.items():
        yield (
            f"{folded(hosts)} differ in hardware or features from others of the group `{label}` of the file"
            f" (would be `{named}`); the group is kept{divide}"
        )
    differ = first.type_name != group.type_name or bool(_common(first, parts))
    if group.several and label != first.named and differ and not others:
        yield (
            f"the nodes of `{label}`, several groups of the file, would be `{first.named}`: the groups are kept;"
            f" --take 'nodes[{label}]' writes it to each"
        )


def _hosts(hosts: Iterable[str]) -> Known:
    return Known(value=folded(hosts), source="Slurm", form="hosts")
