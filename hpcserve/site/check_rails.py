"""Mistakes in a site's rails: each node is in one leaf, or in one for each rail that its NICs have."""

from collections.abc import Mapping
from typing import Any

from hpcserve.site.hostlist import fold_hosts
from hpcserve.site.reading import at, first_of, items_of, number_at, text_at
from hpcserve.wire import Complaint

__all__ = ["check_rails", "listed"]

Rail = int | None
_LINE = 80


def check_rails(
    raw: Mapping[str, Any], type_of: Mapping[str, str], leaf_of: Mapping[Rail, Mapping[str, str]]
) -> list[Complaint]:
    """Nodes in no leaf, in leaves with and without rails, or whose NICs have other rails than their leaves.

    `leaf_of`: for each rail (None: leaves without one) the leaf of each node.
    """
    rails_of_nics = {name: _nic_rails(raw, name) for name in set(type_of.values())}
    alike: dict[tuple[str, frozenset[Rail]], list[str]] = {}
    for host, type_name in type_of.items():
        rails = frozenset(rail for rail, hosts in leaf_of.items() if host in hosts)
        alike.setdefault((type_name, rails), []).append(host)
    without = [host for host, type_name in type_of.items() if not any(host in hosts for hosts in leaf_of.values())]
    complaints = []
    if without:
        complaints.append(
            _complaint(
                f"{listed(without)} in no leaf switch",
                "every node in one leaf switch was wanted",
                "add it to the `hosts` of its switch",
            )
        )
    for (type_name, rails), hosts in alike.items():
        if rails:
            complaints += _check_alike(type_name, rails, hosts, rails_of_nics[type_name])
    return complaints


def _check_alike(type_name: str, rails: frozenset[Rail], hosts: list[str], nics: dict[str, Rail]) -> list[Complaint]:
    """What is wrong with nodes of one type that are in leaves of the same rails."""
    if None in rails and len(rails) > 1:
        return [
            _complaint(
                f"{listed(hosts)} in leaves with and without `rail`",
                "one leaf without a rail was wanted, or one for each rail",
                "add `rail` to all of their leaves, or to none",
            )
        ]
    if None in rails:
        railed = [name for name, rail in nics.items() if rail is not None]
        if not railed:
            return []
        return [
            _complaint(
                f"{listed(hosts)} in a leaf without `rail`, and NIC {first_of(railed)} of `{type_name}` has one",
                "a leaf for each rail of the NICs was wanted",
                "add `rail` to the leaves, or remove it from the NICs",
            )
        ]
    complaints = []
    railless = [name for name, rail in nics.items() if rail is None]
    if railless:
        complaints.append(
            _complaint(
                f"{listed(hosts)} in leaves of rails, and NIC {first_of(railless)} of `{type_name}` has no `rail`",
                "the rail of each NIC was wanted",
                "add `rail` to it, or remove it if it carries no KV",
            )
        )
    missing = sorted({rail for rail in nics.values() if rail is not None} - rails)
    if missing:
        complaints.append(
            _complaint(
                f"{listed(hosts)} in no leaf of rail {', '.join(map(str, missing))}, which NICs of `{type_name}` have",
                "a leaf for each rail of the NICs was wanted",
                "add them to the leaf of that rail",
            )
        )
    surplus = sorted(rail for rail in rails if rail is not None and rail not in nics.values())
    if surplus and not railless:
        complaints.append(
            _complaint(
                f"{listed(hosts)} in a leaf of rail {', '.join(map(str, surplus))}, which no NIC of `{type_name}` has",
                "a NIC of each rail was wanted",
                "correct the `rail` of the leaf or of the NIC",
            )
        )
    return complaints


def _nic_rails(raw: Mapping[str, Any], type_name: str) -> dict[str, Rail]:
    """The rail of each NIC of a type; of none whose rail cannot be read, which the schema reports."""
    return {
        text_at(nic, "name") or f"number {index + 1}": number_at(nic, "rail")
        for index, nic in items_of(raw, "node_types", type_name, "nics")
        if at(nic, "rail") is None or number_at(nic, "rail") is not None
    }


def listed(hosts: list[str]) -> str:
    """Nodes as a host list, or the first of them where that is longer than a line."""
    folded = fold_hosts(hosts)
    return folded if len(folded) <= _LINE else f"node {first_of(hosts)}"


def _complaint(found: str, wanted: str, remedy: str) -> Complaint:
    return Complaint(path=("switches",), found=found, wanted=wanted, remedy=remedy, at_key=True)
