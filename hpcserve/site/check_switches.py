"""Mistakes in a site's switches: a forest whose leaves hold every node once, or once for each rail."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hpcserve.site.check_rails import check_rails
from hpcserve.site.reading import at, first_of, hosts_at, items_of, nearest, number_at, text_at
from hpcserve.wire import Complaint

__all__ = ["check_switches"]


def check_switches(raw: Mapping[str, Any], type_of: Mapping[str, str]) -> list[Complaint]:
    """Every mistake of `switches`; several roots are allowed: there is then no path between their nodes."""
    complaints: list[Complaint] = []
    if not items_of(raw, "switches"):
        return complaints
    indexes = _names(raw, complaints)
    leaves: dict[int | None, _Membership] = {}
    uppers = _Membership("switches", "switch", indexes)
    for index, switch in items_of(raw, "switches"):
        if not isinstance(switch, dict):
            continue
        name = text_at(switch, "name") or f"number {index + 1}"
        bare = switch.get("hosts") is None
        if bare == (switch.get("switches") is None):
            complaints.append(
                Complaint(
                    path=("switches", index),
                    found=f"switch `{name}` has "
                    + ("neither `hosts` nor" if bare else "both `hosts` and")
                    + " `switches`",
                    wanted="exactly one of them was wanted",
                    remedy="a leaf switch has `hosts`, one above leaves has `switches`",
                )
            )
        rail = number_at(switch, "rail")
        leaves.setdefault(rail, _Membership("hosts", "node", type_of)).enter(raw, index, name, complaints)
        uppers.enter(raw, index, name, complaints)
    complaints += _loops(uppers.owner_of, indexes)
    complaints += _uplinks(raw, uppers.owner_of)
    complaints += _kinds(raw)
    complaints += check_rails(raw, type_of, {rail: one.owner_of for rail, one in leaves.items()})
    return complaints


def _names(raw: Mapping[str, Any], complaints: list[Complaint]) -> dict[str, int]:
    indexes: dict[str, int] = {}
    for index, switch in items_of(raw, "switches"):
        name = text_at(switch, "name")
        if name is None:
            continue
        if name in indexes:
            complaints.append(
                Complaint(
                    path=("switches", index, "name"),
                    found=f"switch `{name}` a second time",
                    wanted="each switch once was wanted",
                    remedy="merge the two or rename one",
                )
            )
        indexes.setdefault(name, index)
    return indexes


@dataclass(frozen=True, slots=True)
class _Membership:
    """One rule for nodes in leaves and for switches in switches: each member is known and has one owner."""

    key: Literal["hosts", "switches"]
    noun: Literal["node", "switch"]
    known: Collection[str]
    owner_of: dict[str, str] = field(default_factory=dict)

    def enter(self, raw: Mapping[str, Any], index: int, owner: str, complaints: list[Complaint]) -> None:
        """Note the members of one switch; unknown and doubly owned ones become complaints."""
        path = ("switches", index, self.key)
        members = hosts_at(raw, path, complaints)
        unknown = [member for member in members if member not in self.known]
        if unknown:
            complaints.append(
                Complaint(
                    path=path,
                    found=f"unknown {self.noun} {first_of(unknown)}",
                    wanted=f"{'nodes' if self.noun == 'node' else 'switches'} of this site were wanted",
                    remedy=nearest(unknown[0], self.known, none=f"describe them under `{self.described_under}`"),
                )
            )
        elsewhere: dict[str, list[str]] = {}
        for member in members:
            if member in self.owner_of:
                elsewhere.setdefault(self.owner_of[member], []).append(member)
            elif member in self.known:
                self.owner_of[member] = owner
        for other, doubled in elsewhere.items():
            complaints.append(
                Complaint(
                    path=path,
                    found=f"{self.noun} {first_of(doubled)} a second time, already under `{other}`",
                    wanted=f"each {self.noun} under one switch was wanted",
                    remedy="remove it from one of the two",
                )
            )

    @property
    def described_under(self) -> str:
        """The key of the site under which such members are described."""
        return "nodes" if self.noun == "node" else "switches"


def _loops(parent_of: Mapping[str, str], indexes: Mapping[str, int]) -> Iterator[Complaint]:
    reported: set[str] = set()
    for start in parent_of:
        trail = [start]
        while trail[-1] in parent_of and parent_of[trail[-1]] not in trail:
            trail.append(parent_of[trail[-1]])
        above = parent_of.get(trail[-1])
        if above is None or above in reported:
            continue
        loop = trail[trail.index(above) :]
        reported.update(loop)
        yield Complaint(
            path=("switches", indexes[min(loop, key=lambda name: indexes[name])]),
            found=f"switches in a loop: {' under '.join([*loop, loop[0]])}",
            wanted="a tree was wanted",
            remedy="remove one of them from the other's `switches`",
        )


def _uplinks(raw: Mapping[str, Any], parent_of: Mapping[str, str]) -> Iterator[Complaint]:
    """A switch under another has an uplink, except in a mesh, whose members have direct links instead."""
    meshes = {text_at(switch, "name") for _, switch in items_of(raw, "switches") if at(switch, "mesh") is not None}
    for index, switch in items_of(raw, "switches"):
        name = text_at(switch, "name")
        if name is None:
            continue
        has_uplink = at(switch, "uplink") is not None
        above = parent_of.get(name)
        if above is not None and above not in meshes and not has_uplink:
            yield Complaint(
                path=("switches", index),
                found=f"switch `{name}` is under `{above}` and has no `uplink`",
                wanted="the one-way rate of its links to it was wanted",
                remedy="add `uplink:`",
            )
        if above in meshes and has_uplink:
            yield Complaint(
                path=("switches", index, "uplink"),
                found=f"switch `{name}` has an uplink, and `{above}` above it is a mesh",
                wanted="no uplink was wanted: the `mesh` of the one above is the rate of its direct links",
                remedy="remove one of the two",
                at_key=True,
            )
        if above is None and has_uplink:
            yield Complaint(
                path=("switches", index, "uplink"),
                found=f"switch `{name}` has an uplink and is under no switch",
                wanted="a switch above it was wanted",
                remedy=f"add `{name}` to the `switches` of the one above, or remove `uplink`",
                at_key=True,
            )


def _kinds(raw: Mapping[str, Any]) -> Iterator[Complaint]:
    """Only a leaf has a rail, and only what has switches below it is a mesh."""
    for index, switch in items_of(raw, "switches"):
        name = text_at(switch, "name") or f"number {index + 1}"
        for key, needs, wanted in (
            ("rail", "hosts", "a rail belongs to a leaf"),
            ("mesh", "switches", "a mesh has switches"),
        ):
            if at(switch, key) is not None and at(switch, needs) is None:
                yield Complaint(
                    path=("switches", index, key),
                    found=f"switch `{name}` has `{key}` and no `{needs}`",
                    wanted=wanted,
                    remedy=f"remove `{key}`",
                    at_key=True,
                )
