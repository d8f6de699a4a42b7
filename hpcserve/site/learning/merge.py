"""What was learnt goes into a site file: the admin's word stands, and what differs from it is told."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from hpcserve.site.learning.gaps import forget_gap, is_gap
from hpcserve.site.learning.learnt_record import LearntRecord, is_below, item_path
from hpcserve.site.learning.leaves import Branch, Gap, Items, Known, LearntRate, Node
from hpcserve.site.learning.shared_parts import shared_parts
from hpcserve.site.learning.written import plain, rate_of, same_rate, same_value, write

__all__ = ["Conflict", "Merge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One key where the file and the cluster differ, and the file was left as it is."""

    key: str
    """What `--take` takes."""
    file_says: str
    learnt: str
    source: str

    def __str__(self) -> str:
        return f"{self.key}: the file says {self.file_says}, {self.source} says {self.learnt}; --take '{self.key}'"


class Merge:
    """One merge; `record` holds what an earlier import learnt, by key.

    A value that is still what was learnt then follows the cluster. One that differs is the admin's, and stays, unless
    its key is in `take`. `efficiency` is the share of nominal rates that the admin names.
    """

    def __init__(self, *, record: Mapping[str, Any], take: Collection[str], efficiency: float | None) -> None:
        self.conflicts: list[Conflict] = []
        self.taken: set[str] = set()
        """Those of `take` that let something in, or could have."""
        self._record = LearntRecord(record, efficiency=efficiency)
        self._take = take
        self._efficiency = efficiency
        self._shared: Collection[int] = ()

    @property
    def record(self) -> Mapping[str, Any]:
        """What is known to be learnt after the merge, by key."""
        return self._record.now

    def into(self, data: CommentedMap, draft: Branch) -> None:
        """Merge a whole draft into a whole file."""
        self._shared = shared_parts(data)
        self._branch(data, draft, "")

    def _branch(self, data: CommentedMap, branch: Branch, above: str) -> None:
        for key, node in branch.items():
            path = f"{above}.{key}" if above else key
            if isinstance(node, Items):
                self._items(data, key, node, path)
            elif isinstance(node, Mapping):
                if self._is_open(data, key, path):
                    self._add(data, key, node, path)
                elif data.get(key) is None:
                    self._record.note_all(node, path)
                    self._keep(
                        path, "null" if key in data else "nothing, it was removed", "that it exists", "the import"
                    )
                else:
                    self._inner(data, key, node, path)
            elif not isinstance(node, Gap):
                self._leaf(data, key, node, path)

    def _inner(self, data: Any, key: str | int, branch: Branch, path: str) -> None:
        """A part of the file that aliases share is edited as a copy: what others say stays as it is."""
        child = data[key]
        if not isinstance(child, CommentedMap):
            self._keep(path, child, "a mapping", "the import")
            return
        if id(child) not in self._shared:
            self._branch(child, branch, path)
            return
        copy = CommentedMap(plain(child))
        self._branch(copy, branch, path)
        if plain(copy) != plain(child):
            data[key] = copy

    def _leaf(self, data: CommentedMap, key: str, leaf: Known | LearntRate, path: str) -> None:
        self._record.note(leaf, path)
        if self._is_open(data, key, path):
            self._set(data, key, leaf, path)
            return
        present = key in data
        current = plain(data.get(key))
        if present and self._agrees(current, leaf) and not self._has_other_share(current, leaf, path):
            return
        if self._taken(path) or (present and self._untouched(current, leaf, path)):
            self._set(data, key, leaf, path)
        else:
            self._keep(path, current if present else "nothing, it was removed", self._told(leaf), leaf.source)

    def _is_open(self, data: CommentedMap, key: str, path: str) -> bool:
        """Whether nobody has said anything there: a gap of an import's, an empty list, or a key that never was."""
        if key not in data:
            return not self._record.had(path) or self._taken(path)
        value = data[key]
        if value is None:
            return is_gap(data, key)
        return isinstance(value, CommentedMap | CommentedSeq) and not value

    def _agrees(self, current: Any, leaf: Known | LearntRate) -> bool:
        if isinstance(leaf, Known):
            return same_value(current, leaf)
        return same_rate(current, leaf, efficiency=self._efficiency)

    def _has_other_share(self, current: Any, leaf: Known | LearntRate, path: str) -> bool:
        """Whether a rate is as an earlier import wrote it, with another efficiency than is named now."""
        share = _share_of(current)
        return (
            isinstance(leaf, LearntRate)
            and None not in {share, self._efficiency}
            and share != self._efficiency
            and self._record.value_before(path) == (current,)
        )

    def _untouched(self, current: Any, leaf: Known | LearntRate, path: str) -> bool:
        """Whether the file still says what an earlier import wrote there, or says itself that nobody knew."""
        if isinstance(leaf, LearntRate) and isinstance(current, Mapping) and current.get("unknown") is True:
            return True
        for before in self._record.value_before(path):
            return same_value(current, replace(leaf, value=before)) if isinstance(leaf, Known) else current == before
        return False

    def _set(self, data: CommentedMap, key: str, leaf: Known | LearntRate, path: str) -> None:
        forget_gap(data, key)
        if isinstance(leaf, LearntRate):
            current = plain(data.get(key))
            share = None if self._has_other_share(current, leaf, path) else _share_of(current)
            data[key] = CommentedMap(rate_of(leaf, efficiency=self._efficiency if share is None else share))
            self._record.note_rate(data[key], path)
        else:
            data[key] = write(leaf, efficiency=None)

    def _told(self, leaf: Known | LearntRate) -> Any:
        if isinstance(leaf, Known):
            return leaf.value
        return "no rate" if leaf.nominal_gb_per_s is None else f"{leaf.nominal_gb_per_s:g} GB/s nominal"

    def _items(self, data: CommentedMap, key: str, items: Items, path: str) -> None:
        if self._is_open(data, key, path):
            if items.items:
                self._add(data, key, items, path)
            return
        if key not in data:
            self._keep(path, "nothing, it was removed", f"{len(items.items)} of them", "the import")
            return
        held = data[key]
        if not isinstance(held, CommentedMap if items.mapping else CommentedSeq):
            self._keep(path, plain(held), f"{len(items.items)} items", "the import")
            return
        places = _places(held, items)
        gone = [label for label in places if label not in items.items]
        for label, branch in items.items.items():
            inner = item_path(path, label, items)
            if label in places:
                self._inner(held, places[label], branch, inner)
            elif self._record.had(inner) and not self._taken(inner):
                self._record.note_all(branch, inner)
                self._keep(inner, "nothing, it was removed", "that it exists", "the import")
            else:
                self._append(held, label, branch, items, inner)
        if items.whole:
            self._drop_what_is_gone(held, items, gone, path)

    def _append(self, held: Any, label: str, branch: Branch, items: Items, path: str) -> None:
        self._taken(path)
        written = write(branch, efficiency=self._efficiency)
        if items.mapping:
            held[label] = written
        else:
            held.append(written)
        self._record.note_all(branch, path)

    def _add(self, data: CommentedMap, key: str, node: Node, path: str) -> None:
        written = write(node, efficiency=self._efficiency)
        forget_gap(data, key)
        data[key] = written
        self._record.note_all(node, path)

    def _drop_what_is_gone(self, held: Any, items: Items, gone: list[str], path: str) -> None:
        places = _places(held, items)
        for label in reversed(gone):
            inner, place = item_path(path, label, items), places.get(label)
            if place is None or not self._record.had(inner):
                continue
            if self._taken(inner) or self._record.is_as_learnt(plain(held[place]), inner):
                del held[place]
                self._record.forget(inner)
            else:
                self._keep(inner, "that it exists, with changes by hand", "nothing of it any more", "the import")

    def _taken(self, path: str) -> bool:
        wanted = {one for one in self._take if one == "all" or is_below(path, one)}
        self.taken |= wanted
        return bool(wanted)

    def _keep(self, path: str, current: Any, learnt: Any, source: str) -> None:
        self.conflicts.append(Conflict(key=path, file_says=_short(current), learnt=_short(learnt), source=source))


def _places(held: Any, items: Items) -> dict[str, Any]:
    """Where each item of the file stands, by its label; the first of two with one label."""
    if items.mapping:
        return {str(key): key for key in held}
    places: dict[str, Any] = {}
    for index, item in enumerate(held):
        if isinstance(item, Mapping):
            places.setdefault(items.label(plain(item)), index)
    return places


def _share_of(rate: Any) -> float | None:
    """The efficiency that a rate of the file has: a new nominal rate does not change it."""
    share = rate.get("efficiency") if isinstance(rate, Mapping) else None
    return float(share) if isinstance(share, int | float) else None


def _short(value: Any) -> str:
    text = str(value)
    longest = 70
    return text if len(text) <= longest else text[: longest - 3] + "..."
