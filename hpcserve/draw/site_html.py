"""A site as one HTML page: the picture, and below it every rate with its source. Nothing is fetched from elsewhere."""

from collections.abc import Iterator, Sequence
from html import escape

from hpcserve.draw.site_sketch import Sketch
from hpcserve.draw.site_svg import site_svg
from hpcserve.draw.site_tree import slow_lines
from hpcserve.draw.site_words import Measured, gb, measured_range, named_rates, names_words, rate_words, said_of
from hpcserve.nouns import Rate

__all__ = ["site_html"]

_STYLE = (
    ":root{color-scheme:light dark;--ink:#1b1f24;--soft:#6a737d;--line:#d3d8dd;--ground:#ffffff;--slow:#b3301d}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ec;--soft:#9aa4ae;--line:#3a424b;--ground:#16191d;"
    "--slow:#ff8a75}}"
    "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground);margin:2rem;}"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}.soft{color:var(--soft)}.slow{color:var(--slow)}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{text-align:left;vertical-align:top;padding:.25rem 1rem .25rem 0;border-bottom:1px solid var(--line)}"
    "td:nth-child(2){white-space:nowrap}figure{margin:1rem 0;overflow-x:auto}"
)
_UP = "up from "
_MOST_LETTERS = 80
"""Of a list of switches; a reader of more looks into the site file."""


def site_html(sketch: Sketch, measured: Measured) -> str:
    """The page of a site; with a measurement also its figures and what was slow."""
    name = escape(sketch.site.name)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{name}: the site and its fabric</title><style>{_STYLE}</style></head><body>",
        f'<h1>{name}</h1><p class="soft">{escape(sketch.site.description)}</p>',
        f"<figure>{site_svg(sketch, measured)}</figure>",
        *_measured(sketch, measured),
        "<h2>Where the rates come from</h2>",
        _table(("what", "GB/s, one way", "measured", "source"), _sources(sketch, measured)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _measured(sketch: Sketch, measured: Measured) -> Iterator[str]:
    found = measured.found
    if found is None:
        return
    yield f'<h2>Measured {escape(found.day)}</h2><p class="soft">{escape(found.tool)}</p>'
    yield from (f'<p class="slow">{escape(line)}</p>' for line in slow_lines(measured))
    yield _table(
        ("path", "GB/s, median", "the site says", "least to most", "pairs"),
        (
            (one.class_, gb(one.median), said_of(sketch, one.links), f"{gb(one.min)} to {gb(one.max)}", str(one.n))
            for one in found.classes
        ),
    )
    if found.missing:
        yield f"<p>Not measured: {escape('; '.join(found.missing))}</p>"


def _sources(sketch: Sketch, measured: Measured) -> Iterator[tuple[str, ...]]:
    """Every distinct rate of the site with all that it is of in one row."""
    same: dict[Rate, list[str]] = {}
    for what, rate in named_rates(sketch.site):
        same.setdefault(rate, []).append(what)
    for rate, names in same.items():
        ups = (name.removeprefix(_UP) for name in names if name.startswith(_UP))
        values = tuple(value for name in ups if (value := measured.of_switch(name)) is not None)
        day = f" ({rate.measured_on})" if rate.measured_on else ""
        yield _together(names), rate_words(rate), measured_range(values) or "-", rate.source + day


def _together(names: Sequence[str]) -> str:
    """Names of links in words, those of one node type behind its name and switches as a host list."""
    groups: dict[str, list[str]] = {}
    for name in names:
        if name.startswith(_UP):
            groups.setdefault(_UP, []).append(name.removeprefix(_UP))
        else:
            owner, colon, rest = name.partition(": ")
            groups.setdefault(owner + colon, []).append(rest)
    return "; ".join(
        head + (names_words(rest, most=_MOST_LETTERS) if head == _UP else ", ".join(rest))
        for head, rest in groups.items()
    )


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"
