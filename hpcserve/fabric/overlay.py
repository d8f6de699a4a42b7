"""What was measured, laid over what the site says; the site's own figures stay."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hpcserve.errors import PlacementError
from hpcserve.fabric.links import GpuAt, Link
from hpcserve.nouns import Measurement

__all__ = ["Overlay", "overlay_of"]

Figure = tuple[float, str]
"""One-way GB/s and where that comes from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """Measured figures by link, by pair and by path class; a pair's own goes before its class's."""

    links: Mapping[str, Figure] = field(default_factory=dict)
    floors: Mapping[str, Figure] = field(default_factory=dict)
    """What links carried that were not the limit."""
    pairs: Mapping[tuple[GpuAt, GpuAt], Figure] = field(default_factory=dict)
    classes: Mapping[str, Figure] = field(default_factory=dict)

    def over(self, link: Link) -> Link:
        """The link with what was measured of it, if anything was.

        What it carried without being the limit is not what it can: that only stands over a figure of the site that is
        lower still, and makes no unknown rate known.
        """
        figure = self.links.get(link.name)
        floor = self.floors.get(link.name)
        if figure is None and floor is not None and 0 < link.gb_per_s < floor[0]:
            figure = floor
        return link if figure is None else replace(link, gb_per_s=figure[0], source=figure[1], is_measured=True)

    @property
    def says_of_paths(self) -> bool:
        """Whether anything was measured of whole paths."""
        return bool(self.pairs or self.classes)

    def over_path(self, links: tuple[Link, ...], figure: Figure) -> tuple[Link, ...]:
        """The links of a path that carried `figure` alone.

        Every link that is slower by what is known carries at least that much; where all are faster, the slowest one is
        taken to be what held it.
        """
        gb_per_s, source = figure
        slowest = min(range(len(links)), key=lambda index: links[index].gb_per_s)
        return tuple(
            replace(link, gb_per_s=gb_per_s, source=source, is_measured=True)
            if link.gb_per_s < gb_per_s or index == slowest
            else link
            for index, link in enumerate(links)
        )


def overlay_of(measured: Measurement | None, *, site: str) -> Overlay:
    """The overlay of a measurement of that site; raises PlacementError for one of another site."""
    if measured is None:
        return Overlay()
    if measured.site != site:
        raise PlacementError(
            f"a measurement of site `{measured.site}`, and the site is `{site}`",
            remedy="give the site's own measurement, or measure it: hpcserve site measure",
        )
    said = f"measured on {measured.day}: {measured.tool}"
    return Overlay(
        links={link.name: (link.gb_per_s, said) for link in measured.links},
        floors={link.name: (link.gb_per_s, f"{said}, at least: it was not the limit") for link in measured.not_filled},
        pairs={
            (GpuAt(pair.a.node, pair.a.gpu), GpuAt(pair.b.node, pair.b.gpu)): (
                pair.gb_per_s,
                f"{said}, this pair, {pair.n} transfers" + (f", {pair.transport}" if pair.transport else ""),
            )
            for pair in measured.pairs
        },
        classes={
            one.class_: (one.median, f"{said}, median of {one.n} such pairs, {one.min:.4g} to {one.max:.4g} GB/s")
            for one in measured.classes
        },
    )
