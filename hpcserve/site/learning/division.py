"""What a division of groups does to a site file, as round-trip YAML or as plain data."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml.comments import CommentedMap

from hpcserve.site.learning.gaps import forget_gap
from hpcserve.site.learning.shared_parts import shared_parts
from hpcserve.site.learning.written import plain, write_list

__all__ = ["Division"]


@dataclass(frozen=True, kw_only=True)
class Division:
    """What is to be done to the groups of a file."""

    changed: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """For the places of groups in the list, what they say then; None for a key that goes."""
    added: tuple[tuple[int, Mapping[str, Any]], ...] = ()
    """New groups: copies of the one at a place, with what they say else."""
    gone: frozenset[int] = frozenset()
    """Places of groups whose nodes have all joined others."""
    record: Mapping[str, Any]
    """What is known to be learnt, for the groups as they are then."""
    taken: frozenset[str] = frozenset()
    """Those of `--take` that divided something."""

    def apply(self, data: Any) -> None:
        """Divide the groups of a site, as round-trip YAML or as plain data."""
        if not (self.changed or self.added or self.gone):
            return
        groups, shared = data["nodes"], shared_parts(data)
        new = [_said(_copy(groups[place]), words) for place, words in self.added]
        for place, words in self.changed.items():
            group = groups[place]
            # what other places say by an alias stays as it is
            groups[place] = _said(_copy(group) if id(group) in shared else group, words)
        for place in sorted(self.gone, reverse=True):
            del groups[place]
        groups.extend(new)

    def of(self, site: Any) -> Any:
        """The plain data of a site with its groups divided; that which is given stays as it is."""
        if not (self.changed or self.added or self.gone):
            return site
        copy = {**site, "nodes": [dict(group) if isinstance(group, Mapping) else group for group in site["nodes"]]}
        self.apply(copy)
        return plain(copy)


def _copy(group: Mapping[str, Any]) -> CommentedMap:
    return CommentedMap({key: write_list(value) for key, value in plain(group).items()})


def _said(group: MutableMapping[str, Any], words: Mapping[str, Any]) -> MutableMapping[str, Any]:
    """The group, which says other words now."""
    for key, value in words.items():
        if isinstance(group, CommentedMap):
            forget_gap(group, key)
        if value is None:
            group.pop(key, None)
        else:
            group[key] = write_list(value)
    return group
