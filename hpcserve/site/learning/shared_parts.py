"""Parts of a site file that stand in several places by aliases."""

from typing import Any

from ruamel.yaml.comments import CommentedMap, CommentedSeq

__all__ = ["shared_parts"]


def shared_parts(data: Any) -> frozenset[int]:
    """Identities of mappings and lists that stand in more than one place, by aliases."""
    seen: dict[int, int] = {}

    def visit(part: Any) -> None:
        if not isinstance(part, CommentedMap | CommentedSeq):
            return
        seen[id(part)] = seen.get(id(part), 0) + 1
        if seen[id(part)] == 1:
            for inner in part.values() if isinstance(part, CommentedMap) else part:
                visit(inner)

    visit(data)
    return frozenset(identity for identity, count in seen.items() if count > 1)
