"""What paths are made of: `GpuAt`, `Link`, `FabricPath`; every figure with its source."""

from dataclasses import dataclass
from typing import Literal

from hpcserve.nouns import Rate

__all__ = ["FabricPath", "GpuAt", "Link", "PathDistance", "link_of"]

PathDistance = Literal["same-node", "same-leaf", "across-leaves"]


@dataclass(frozen=True, slots=True, order=True)
class GpuAt:
    """One GPU: its node and its index there."""

    node: str
    index: int


@dataclass(frozen=True, slots=True)
class Link:
    """One direction of one link that paths may share: its name, one-way GB/s, and where that figure comes from.

    0 GB/s says that nobody knows; such a link stands in no path.
    """

    name: str
    gb_per_s: float
    source: str
    static_gb_per_s: float | None = None
    """What the site says, whatever was measured; None where the site does not know."""
    where: str = ""
    """The keys of the site file that give the rate: `switches, leaf1, uplink`."""
    is_measured: bool = False
    """Whether the figure is a measurement and not the site's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricPath:
    """What KV passes from one GPU to another. `gb_per_s` is one-way, of the slowest link, alone on it."""

    hops: tuple[str, ...]
    gb_per_s: float
    distance: PathDistance
    source: str
    """Where the rate of the slowest link comes from."""
    links: tuple[Link, ...]
    """In order; two paths that share a link share its rate."""

    @property
    def static_gb_per_s(self) -> float | None:
        """What the site alone says of this path, whatever was measured; None where it does not know."""
        rates = [link.static_gb_per_s for link in self.links]
        known = [rate for rate in rates if rate is not None]
        return min(known) if len(known) == len(rates) else None


def link_of(name: str, rate: Rate, where: str, *, times: int = 1) -> Link:
    """A link as the site gives it; `times` the rate, for several links side by side."""
    known = rate.known_gb_per_s
    if known is None:
        return Link(name, 0.0, rate.source, None, where)
    return Link(name, known * times, rate.source, known * times, where)
