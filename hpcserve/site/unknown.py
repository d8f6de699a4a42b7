"""A site's rates with the paths to them, and what the site still does not know of itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpcserve.nouns import Noun, Rate, Site
from hpcserve.site.check_rates import rate_paths
from hpcserve.site.reading import Path, text_at

__all__ = ["UnknownRate", "rates_of", "unknown_rates"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownRate:
    """A rate that is not known: the keys of the site file that would give it, and why it is unknown."""

    where: str
    why: str


def rates_of(site: Site) -> Iterator[tuple[Path, Rate]]:
    """Every rate of a site with the keys and indexes that lead to it, in the order of `rate_paths`."""
    return ((path, rate) for path in rate_paths(_raw(site)) if (rate := _rate_at(site, path)) is not None)


def unknown_rates(site: Site) -> tuple[UnknownRate, ...]:
    """Every rate with `unknown: true`, in the order of `rate_paths`; the fabric refuses paths that need one."""
    raw = _raw(site)
    return tuple(
        UnknownRate(where=", ".join(_words(raw, path)), why=rate.source)
        for path, rate in rates_of(site)
        if rate.unknown
    )


def _raw(site: Site) -> Mapping[str, Any]:
    return site.model_dump(mode="json", by_alias=True)


def _rate_at(site: Site, path: Path) -> Rate | None:
    value: Any = site
    for step in path:
        value = getattr(value, step) if isinstance(step, str) and isinstance(value, Noun) else value[step]
    return value if isinstance(value, Rate) else None


def _words(raw: Mapping[str, Any], path: Path) -> Iterator[str]:
    """The keys of a path; items of lists by their name, or their number from 1."""
    for index, step in enumerate(path):
        if isinstance(step, str):
            yield step
        else:
            yield text_at(raw, *path[: index + 1], "name") or f"number {step + 1}"
