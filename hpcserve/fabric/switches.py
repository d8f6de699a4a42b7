"""`Switches`: a forest of switches and meshes, and what lies between any two of its leaves."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from hpcserve.errors import PlacementError
from hpcserve.fabric.links import Link, link_of
from hpcserve.nouns import Rate

__all__ = ["Between", "SwitchAt", "Switches"]


_MOST_REMEMBERED = 65536
"""Pairs of leaves whose way is kept: some 30 MB at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchAt:
    """One switch: its parent and the rate of its links to it (a root and a member of a mesh have no such links)."""

    name: str
    parent: str | None
    uplink: Rate | None
    mesh: Rate | None = None
    """A group whose members have direct links, each of this rate, instead of a switch above them."""
    members: int = 0

    @property
    def uplink_gb_per_s(self) -> float | None:
        """One-way GB/s to the parent; 0 where there are no such links, None where nobody knows."""
        return self.uplink.known_gb_per_s if self.uplink else 0.0

    @property
    def source(self) -> str:
        """Where that rate comes from."""
        return self.uplink.source if self.uplink else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What lies between two leaves: the links in order, and the switches that are passed, both leaves included."""

    links: tuple[Link, ...]
    hops: tuple[str, ...]
    height: int
    """How many levels are climbed: 0 under one leaf."""
    meshed: bool
    """Whether the top of the way is a direct link of a mesh."""


@dataclass(slots=True)
class Switches:
    """A forest. `overlay` may put what was measured over what the site says of a link."""

    switches: Mapping[str, SwitchAt]
    overlay: Callable[[Link], Link]
    _chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _steps: dict[str, tuple[tuple[Link, ...], tuple[Link, ...]]] = field(default_factory=dict)
    _remembered: Callable[[str, str], Between] = field(init=False)

    def __post_init__(self) -> None:
        self._remembered = lru_cache(maxsize=_MOST_REMEMBERED)(self._between)

    def above(self, leaf: str) -> tuple[str, ...]:
        """The leaf, the switch above it, and so on to the root."""
        chain = self._chains.get(leaf)
        if chain is None:
            names = [leaf]
            while (parent := self.switches[names[-1]].parent) is not None:
                names.append(parent)
            chain = self._chains[leaf] = tuple(names)
        return chain

    def rates(self, name: str) -> tuple[float, ...]:
        """One-way GB/s from a switch to what is above it, and back; 0 where nobody knows."""
        return tuple(link.gb_per_s for way in self._step(name) for link in way)

    def between(self, a: str, b: str) -> Between:
        """The way from leaf `a` to leaf `b`; raises PlacementError where no switch joins them.

        A way through a dragonfly is the minimal one: at most one link of each group's mesh, and one between groups.
        """
        return self._remembered(a, b)

    def _between(self, a: str, b: str) -> Between:
        if a == b:
            return Between(links=(), hops=(a,), height=0, meshed=False)
        from_a, from_b = self.above(a), self.above(b)
        height, depth = len(from_a), len(from_b)
        while height and depth and from_a[height - 1] == from_b[depth - 1]:
            height, depth = height - 1, depth - 1
        if height == len(from_a):
            raise PlacementError(
                f"no switch of the site joins `{from_a[-1]}` and `{from_b[-1]}`",
                remedy="put both under one switch in the site, or keep prefill and decode under one of the two",
            )
        top = self.switches[from_a[height]]
        up, down = from_a[:height], from_b[:depth][::-1]
        across: tuple[Link, ...] = ()
        if top.mesh is None:
            climbed, descended, hops = up, down, (*up, top.name, *down)
        else:
            climbed, descended, hops = up[:-1], down[1:], (*up, *down)
            across = (self._direct(top, up[-1], down[0]),)
        links = (
            *(link for name in climbed for link in self._step(name)[0]),
            *across,
            *(link for name in descended for link in self._step(name)[1]),
        )
        return Between(links=links, hops=hops, height=height, meshed=top.mesh is not None)

    def _direct(self, top: SwitchAt, a: str, b: str) -> Link:
        assert top.mesh is not None  # noqa: S101 - asked for members of a mesh only
        return self.overlay(link_of(f"{a} to {b}", top.mesh, f"switches, {top.name}, mesh"))

    def _step(self, name: str) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
        """The links from a switch to what is above it, and back; inside a mesh all its direct links together."""
        step = self._steps.get(name)
        if step is None:
            at = self.switches[name]
            above = self.switches[at.parent] if at.parent is not None else None
            if above is not None and above.mesh is not None:
                others, where = above.members - 1, f"switches, {above.name}, mesh"
                names = (f"{name} out of {above.name}", f"{above.name} into {name}") if others else ()
                made = [link_of(text, above.mesh, where, times=others) for text in names]
            else:
                assert at.uplink is not None  # noqa: S101 - the site's check wants one of every such switch
                made = [link_of(f"{name} {way}", at.uplink, f"switches, {name}, uplink") for way in ("up", "down")]
            links = tuple(self.overlay(link) for link in made)
            step = self._steps[name] = (links[:1], links[1:])
        return step
