"""NICs that are written only where the admin wants them: the file has one of that name, or `--take` names just it."""

from collections.abc import Collection, Iterator, Mapping

from hpcserve.site.learning.draft_types import named
from hpcserve.site.learning.leaves import Branch, Items, Known
from hpcserve.site.reading import items_of, text_at

__all__ = ["offers_left", "with_offers"]


def with_offers(
    kind: Branch, offered: Mapping[str, Branch], *, name: str, site: object, take: Collection[str]
) -> Branch:
    """A drafted node type, which the file calls `name`, with those of the offered NICs that are wanted."""
    written = {text_at(nic, "name") for _, nic in items_of(site, "node_types", name, "nics")}
    wanted = {nic: branch for nic, branch in offered.items() if nic in written or _key(name, nic) in take}
    if not wanted:
        return kind
    nics = kind["nics"]
    known = nics.items if isinstance(nics, Items) else {}
    return {**kind, "nics": Items(label=named, items={**known, **wanted}, whole=False)}


def offers_left(kind: Branch, offered: Mapping[str, Branch], *, name: str) -> Iterator[str]:
    """Which RoCE ports were not wanted, and how they are taken in."""
    nics = kind["nics"]
    for nic, branch in offered.items():
        if isinstance(nics, Items) and nic in nics.items:
            continue
        if _value(branch, "kind") == "roce":
            yield (
                f"{nic} of `{name}` (Ethernet, {branch['rate'].source}) is left out;"
                f" where it carries KV by RoCE, --take '{_key(name, nic)}' takes it in"
            )


def _key(name: str, nic: str) -> str:
    return f"node_types.{name}.nics[{nic}]"


def _value(branch: Branch, key: str) -> object:
    known = branch.get(key)
    return known.value if isinstance(known, Known) else None
