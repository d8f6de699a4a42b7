"""Groups of nodes as Slurm tells them apart, by the labels that they would have in the file."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hpcserve.site.hostlist import HostListError, expand_hosts, fold_hosts
from hpcserve.site.learning.draft import group_label
from hpcserve.site.learning.leaves import Branch, Known
from hpcserve.site.learning.tiers import natural

__all__ = ["DraftedGroup", "drafted_groups", "expanded", "folded"]


@dataclass(frozen=True, kw_only=True)
class DraftedGroup:
    """One drafted group with the file's name for its type."""

    label: str
    """As it was drafted."""
    branch: Branch
    named: str
    """Its label by the file's name for its type."""
    hosts: tuple[str, ...]

    @property
    def type_name(self) -> str:
        """The file's name for its type."""
        known = self.branch.get("type")
        return str(known.value) if isinstance(known, Known) else ""

    @property
    def features(self) -> tuple[str, ...]:
        """What Slurm's `--constraint` takes for it."""
        known = self.branch.get("features")
        return tuple(known.value) if isinstance(known, Known) else ()


def drafted_groups(drafted: Mapping[str, Branch], types: Mapping[str, str]) -> tuple[DraftedGroup, ...]:
    """Drafted groups in their order; `types` are the file's names for drafted types."""
    return tuple(_named(label, branch, types) for label, branch in drafted.items())


def _named(label: str, branch: Branch, types: Mapping[str, str]) -> DraftedGroup:
    named = dict(branch)
    kind, hosts = branch["type"], branch["hosts"]
    if isinstance(kind, Known):
        named["type"] = replace(kind, value=types[kind.value])
    return DraftedGroup(
        label=label,
        branch=named,
        named=group_label({key: node.value for key, node in named.items() if isinstance(node, Known)}),
        hosts=expand_hosts(hosts.value) if isinstance(hosts, Known) else (),
    )


def expanded(expression: object) -> frozenset[str]:
    """The names of a host list; none for what is not one."""
    try:
        return frozenset(expand_hosts(expression)) if isinstance(expression, str) and expression else frozenset()
    except HostListError:
        return frozenset()


def folded(hosts: Iterable[str]) -> str:
    """Hosts as one expression, each once, in the order in which people number them."""
    return fold_hosts(sorted(set(hosts), key=natural))
