"""GRES and TRES texts -> how many GPUs of which type."""

import re
from dataclasses import dataclass

__all__ = ["UNTYPED", "Gres", "parse_gres"]

UNTYPED = "untyped"
"""The type of GPUs whose GRES names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gres:
    """The GPUs of a node or job, by type; shards and shares of MPS are parts of GPUs and count as none."""

    types: dict[str, int]

    @property
    def gpus(self) -> int:
        """All GPUs together."""
        return sum(self.types.values())


_NONE = frozenset({"", "(null)", "none", "n/a"})
_TERM = re.compile(r"[^,()]*+(?:\([^()]*+\)[^,()]*+)*+")
_SUFFIX = re.compile(r"\([^()]*+\)")
_COUNT = re.compile(r"([0-9]{1,15})([kmgtp]?)", re.IGNORECASE)
_FLAGS = frozenset({"no_consume", "shared", "one_sharing"})
"""Words that may stand between type and count (slurm.conf(5), Gres)."""
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_KEY = re.compile(r"\Agres=", re.IGNORECASE)
"""As slurm.conf and `scontrol show node` write it."""
_TRES = re.compile(r"[^,=\s]++=[^,\s]*+(?:,[^,=\s]++=[^,\s]*+)*+")


def parse_gres(text: str) -> Gres:
    """The GPUs of `gpu:h100:8(S:0-1),shard:64` or of `cpu=64,gres/gpu=8,gres/gpu:h200=8`; raises ValueError otherwise.

    A `Gres=` before it is taken off. What stands in parentheses are sockets or indexes. In the TRES form the total and
    the types are the same GPUs.
    """
    bare = _KEY.sub("", text.strip())
    if bare.lower() in _NONE:
        return Gres(types={})
    if _TRES.fullmatch(bare):
        return _tres(bare)
    types: dict[str, int] = {}
    at = 0
    while True:
        term = _TERM.match(bare, at)
        end = term.end() if term else at
        if end < len(bare) and bare[end] != ",":
            raise ValueError(f"the parentheses in `{bare[:80]}` do not match")
        _add(types, bare[at:end])
        if end >= len(bare):
            return Gres(types=types)
        at = end + 1


def _add(types: dict[str, int], term: str) -> None:
    name, *rest = _SUFFIX.sub("", term).strip().removeprefix("gres/").removeprefix("gres:").split(":")
    if not name:
        raise ValueError(f"`{term[:80]}` names no resource")
    count = 1
    if rest and (number := _COUNT.fullmatch(rest[-1])):
        count = _number(number)
        rest = rest[:-1]
    rest = [word for word in rest if word.lower() not in _FLAGS]
    if len(rest) > 1:
        raise ValueError(f"`{term[:80]}` is not `NAME[:TYPE][:COUNT]`")
    if name.lower() == "gpu" and count:
        kind = rest[0] if rest else UNTYPED
        types[kind] = types.get(kind, 0) + count


def _tres(text: str) -> Gres:
    total = 0
    types: dict[str, int] = {}
    for pair in text.split(","):
        key, value = pair.split("=", 1)
        name, _, kind = key.lower().partition(":")
        if name != "gres/gpu":
            continue
        number = _COUNT.fullmatch(value)
        if number is None:
            raise ValueError(f"`{value[:80]}` of `{key[:80]}` is not a number")
        if kind:
            kind = key.partition(":")[2]
            types[kind] = types.get(kind, 0) + _number(number)
        else:
            total = max(total, _number(number))
    if total > sum(types.values()):
        types[UNTYPED] = total - sum(types.values())
    return Gres(types={kind: count for kind, count in types.items() if count})


def _number(match: re.Match[str]) -> int:
    """Slurm's suffixes are powers of 1024 (slurm.conf(5), Gres)."""
    return int(match[1]) << 10 * _POWERS[match[2].lower()]
