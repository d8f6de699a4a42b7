"""`Rate`: what one port or link carries one way, and how anybody knows."""

from typing import Annotated

from pydantic import Field

from hpcserve.nouns.base import Figure, IsoDate, Noun, Text

__all__ = ["Rate"]


class Rate(Noun):
    """A one-way rate of one port or link, in GB/s (1e9 bytes/s), with its source.

    Exactly one of: `effective_gb_per_s`; `nominal_gb_per_s` and the `efficiency` of it that transfers reach; or
    `unknown: true`, for what no tool prints and nobody has measured yet.
    """

    nominal_gb_per_s: Figure | None = None
    """What the data sheet says, one way: 400 Gbit/s are 50."""
    efficiency: Annotated[float, Field(ge=1e-9, le=1)] | None = None
    """The share of the nominal rate that transfers reach."""
    effective_gb_per_s: Figure | None = None
    """What transfers reach, one way, instead of the two above."""
    unknown: bool = False
    """`true` instead of any figure: nobody knows yet; paths that need the rate are refused."""
    source: Text
    """Vendor, admin or measurement, in words that a plan prints; for an unknown rate, why it is unknown."""
    measured_on: IsoDate | None = None
    """The day of the measurement, in quotes; null for a data sheet or an assumption."""

    @property
    def known_gb_per_s(self) -> float | None:
        """Effective one-way GB/s; None for a rate that is unknown."""
        if self.effective_gb_per_s is not None:
            return self.effective_gb_per_s
        if self.nominal_gb_per_s is None or self.efficiency is None:
            return None
        return self.nominal_gb_per_s * self.efficiency

    @property
    def gb_per_s(self) -> float:
        """Effective one-way GB/s; raises ValueError for a rate that is unknown."""
        known = self.known_gb_per_s
        if known is None:
            raise ValueError(f"a rate that is unknown: {self.source}")
        return known
