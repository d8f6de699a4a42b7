"""Gaps in a site file: keys without a value, beside which an import wrote what belongs there."""

from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.error import CommentMark
from ruamel.yaml.tokens import CommentToken

from hpcserve.site.learning.written import NOT_LEARNT

__all__ = ["forget_gap", "is_gap"]


def is_gap(data: CommentedMap, key: str) -> bool:
    """Whether the key's line has the comment of an import that did not learn its value."""
    tokens = data.ca.items.get(key)
    return bool(tokens) and tokens[2] is not None and tokens[2].value.startswith(f"# {NOT_LEARNT}")


def forget_gap(data: CommentedMap, key: str) -> None:
    """Take away the comment that says that a value was not learnt; blank lines after it go before the next key."""
    # ruamel.yaml keeps four tokens with a key; the third begins with the comment in the key's line.
    tokens = data.ca.items.get(key)
    if not is_gap(data, key):
        return
    following = tokens[2].value.partition("\n")[2].splitlines(keepends=True)
    tokens[2] = None
    keys = list(data)
    after = keys[keys.index(key) + 1 :]
    if after and following:
        moved = [
            CommentToken(line.lstrip(" "), CommentMark(len(line) - len(line.lstrip(" "))), None) for line in following
        ]
        next_tokens = data.ca.items.setdefault(after[0], [None, None, None, None])
        next_tokens[1] = moved + (next_tokens[1] or [])
