"""What imports wrote into a site file, by key: it tells the admin's words from an import's."""

from collections.abc import Iterator, Mapping
from typing import Any

from hpcserve.site.learning.leaves import Items, Known, LearntRate, Node
from hpcserve.site.learning.written import plain, rate_of

__all__ = ["LearntRecord", "is_below", "item_path"]


class LearntRecord:
    """What was learnt before this import, and what will be known to be learnt after it.

    `efficiency` is the share of nominal rates that the admin names.
    """

    def __init__(self, before: Mapping[str, Any], *, efficiency: float | None) -> None:
        self.now = dict(before)
        self._before = dict(before)
        self._efficiency = efficiency

    def had(self, path: str) -> bool:
        """Whether an earlier import learnt something at this key or below it."""
        return any(is_below(key, path) for key in self._before)

    def value_before(self, path: str) -> tuple[Any, ...]:
        """The one value that an earlier import wrote at exactly this key, or none."""
        return (self._before[path],) if path in self._before else ()

    def is_as_learnt(self, item: Any, path: str) -> bool:
        """Whether every value of a part of the file is one that an earlier import wrote."""
        return all(value is None or self.value_before(key) == (value,) for key, value in _values(item, path))

    def note_rate(self, written: Mapping[str, Any], path: str) -> None:
        """Note a rate as it is written now."""
        self.now[path] = plain(written)

    def note(self, leaf: Known | LearntRate, path: str) -> None:
        """Note what the cluster says of one key, whether the file takes it or not."""
        if isinstance(leaf, Known):
            self.now[path] = plain(leaf.value)

    def note_all(self, node: Node, path: str) -> None:
        """Note everything of a part that is written whole, or was removed by the admin."""
        if isinstance(node, Known):
            self.note(node, path)
        elif isinstance(node, LearntRate):
            self.note_rate(rate_of(node, efficiency=self._efficiency), path)
        elif isinstance(node, Items):
            for label, branch in node.items.items():
                self.note_all(branch, item_path(path, label, node))
        elif isinstance(node, Mapping):
            for key, inner in node.items():
                self.note_all(inner, f"{path}.{key}")

    def forget(self, path: str) -> None:
        """Forget a part that is gone."""
        for recorded in [key for key in self.now if is_below(key, path)]:
            del self.now[recorded]


def is_below(key: str, path: str) -> bool:
    """Whether a key is `path` or stands below it: `partitions.a.hosts` below `partitions.a`, not `partitions.ab`."""
    return key == path or key.startswith((f"{path}.", f"{path}["))


def item_path(path: str, label: str, items: Items) -> str:
    """The key of one item: `partitions.batch`, `switches[leaf1]`."""
    return f"{path}.{label}" if items.mapping else f"{path}[{label}]"


def _values(item: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value below an item that a record may hold; a rate is one value."""
    if isinstance(item, Mapping) and not ({"unknown", "source"} & set(item)):
        for key, value in item.items():
            yield from _values(value, f"{path}.{key}")
    else:
        yield path, item
