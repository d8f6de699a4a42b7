"""A draft goes into the text of a site file, new or old."""

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hpcserve.site.learning.align import aligned
from hpcserve.site.learning.draft import Draft
from hpcserve.site.learning.merge import Conflict, Merge
from hpcserve.site.learning.text import edited
from hpcserve.wire import plain_yaml

__all__ = ["Refreshed", "refresh"]


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """A site file after an import: its text, what is now known to be learnt, and what was left as it was."""

    text: str
    record: Mapping[str, Any]
    conflicts: tuple[Conflict, ...]
    notes: tuple[str, ...]

    def diff(self, before: str, *, file: str) -> str:
        """A unified diff from the text before; empty where nothing changed."""
        return "".join(
            difflib.unified_diff(
                before.splitlines(keepends=True), self.text.splitlines(keepends=True), f"{file} (now)", f"{file} (new)"
            )
        )


def refresh(
    text: str,
    draft: Draft,
    *,
    source: str,
    record: Mapping[str, Any],
    take: Collection[str] = (),
    efficiency: float | None = None,
) -> Refreshed:
    """The text with what was learnt in it. Where nothing is new the text is the same, byte for byte.

    `record` is what the last import left under that name. `efficiency` is the share of nominal link rates that the
    admin says transfers reach. Raises InputError where the text is no YAML that hpcserve reads.
    """
    named = aligned(draft, plain_yaml(text, source=source), record, take=take)
    merges: list[Merge] = []

    def change(data: Any) -> None:
        named.division.apply(data)
        merge = Merge(record=named.record, take=take, efficiency=efficiency)
        merge.into(data, named.draft.branch)
        merges.append(merge)

    new = edited(text, change, source=source)
    (merge,) = merges
    unused = [_unused(key) for key in sorted(set(take) - merge.taken - named.division.taken - {"all"})]
    return Refreshed(
        text=new, record=merge.record, conflicts=tuple(merge.conflicts), notes=(*named.draft.notes, *unused)
    )


def _unused(key: str) -> str:
    """What to say of a key of --take that took nothing."""
    if key.endswith("]") and ".nics[" in key:
        return (
            f"`{key}`, which --take names, is no NIC that was seen or that differs: those are offered that are up, say"
            " their speed and are hardware (no bond, bridge or virtual interface: write such a one by hand)"
        )
    return f"nothing differs at `{key}`, which --take names"
