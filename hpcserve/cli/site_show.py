"""`hpcserve site show`: the cluster as a tree in the terminal and as a picture."""

import json
from pathlib import Path
from typing import Any

import click

from hpcserve.cli.options import complete_site, examples, json_option, measured_option
from hpcserve.deploy import find_site, read_measurement, read_text, write_whole
from hpcserve.draw import Measured, Part, Sketch, site_html, site_svg, site_tree, sketch_of
from hpcserve.nouns import Rate
from hpcserve.site import load_site

__all__ = ["show"]


@click.command(
    epilog=examples(
        "hpcserve site show onebox",
        "hpcserve site show my-cluster.yaml --html my-cluster.html",
        "hpcserve site show my-cluster.yaml --measured measured.json --svg my-cluster.svg",
    )
)
@click.argument("site", metavar="NAME|FILE", shell_complete=complete_site)
@click.option("--svg", type=click.Path(path_type=Path, dir_okay=False), help="Write the picture to this file.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page: picture and sources.")
@measured_option
@json_option
def show(site: str, svg: Path | None, html: Path | None, measured: Path | None, as_json: bool) -> None:
    """Show a site: switches with their rates, node types, NVLink domains; what looks alike is folded to one line."""
    path = find_site(site)
    found = load_site(read_text(path), source=str(path))
    figures = Measured.of(read_measurement(measured, found)[0] if measured else None)
    sketch = sketch_of(found)
    if svg:
        write_whole(svg, site_svg(sketch, figures).encode(), remedy="name another file with --svg")
    if html:
        write_whole(html, site_html(sketch, figures).encode(), remedy="name another file with --html")
    if as_json:
        click.echo(json.dumps(_record(sketch, figures), indent=1))
    else:
        click.echo(site_tree(sketch, figures), nl=False)
    for picture in (svg, html):
        if picture:
            click.echo(f"picture: {picture}", err=True)


def _record(sketch: Sketch, measured: Measured) -> dict[str, Any]:
    return {
        "site": sketch.site.name,
        "nodes": len(sketch.kind_of),
        "gpus": sketch.gpus,
        "roots": [_part(part, measured) for part in sketch.roots],
        "nvlink_domains": {one.name: one.hosts for one in sketch.site.nvlink_domains},
    }


def _part(part: Part, measured: Measured) -> dict[str, Any]:
    return {
        "switches": list(part.names),
        "alike": part.count,
        "rails": list(part.rails),
        "hosts": list(part.hosts),
        "uplink_gb_per_s": _figures(part.uplinks),
        "measured_gb_per_s": list(measured.of_uplinks(part)),
        "mesh_gb_per_s": _figures(part.meshes),
        "below": [_part(one, measured) for one in part.below],
    }


def _figures(rates: tuple[Rate, ...]) -> list[float | None]:
    """The rates in GB/s; null for one that is unknown."""
    return [None if rate.unknown else rate.gb_per_s for rate in rates]
