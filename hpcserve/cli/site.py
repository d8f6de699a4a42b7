"""`hpcserve site`: the clusters that are known, and whether a site file is right."""

import json

import click

from hpcserve.cli.options import complete_site, examples, json_option, print_record
from hpcserve.cli.site_import import import_
from hpcserve.cli.site_show import show
from hpcserve.deploy import find_site, list_sites, read_text
from hpcserve.draw import text_table
from hpcserve.errors import InputError
from hpcserve.fabric import Fabric, fabric_of
from hpcserve.site import load_site, unknown_rates

__all__ = ["site"]


@click.group()
def site() -> None:
    """Site files: import, check, show, measure and list them."""


site.add_command(import_)


@site.command("list", epilog=examples("hpcserve site list"))
@json_option
def list_(as_json: bool) -> None:
    """List the sites that --site takes by name, and where each comes from."""
    rows = []
    for name, path in list_sites().items():
        try:
            description = load_site(read_text(path), source=str(path)).description
        except InputError as error:
            count = len(error.mistakes)
            description = f"has {count} {'mistake' if count == 1 else 'mistakes'}: hpcserve site check {name}"
        rows.append((name, description, str(path)))
    if as_json:
        click.echo(
            json.dumps([{"name": name, "description": text, "file": file} for name, text, file in rows], indent=1)
        )
    else:
        click.echo(text_table(("site", "description", "file"), rows), nl=False)


@site.command(epilog=examples("hpcserve site check my-cluster.yaml", "hpcserve site check onebox"))
@click.argument("file", metavar="FILE|NAME", shell_complete=complete_site)
@json_option
def check(file: str, as_json: bool) -> None:
    """Read a site file and say what it describes, or every mistake with line and column."""
    path = find_site(file)
    found = load_site(read_text(path), source=str(path))
    fabric = fabric_of(found)
    if as_json:
        print_record(found)
        return
    click.echo(f"{path}: {found.name}, {found.description}")
    rows = [
        (leaf, str(len(nodes)), ", ".join(sorted({_kind(fabric, node) for node in nodes})))
        for leaf, nodes in _by_leaf(fabric).items()
    ]
    click.echo(text_table(("leaf", "nodes", "GPUs"), rows, right=frozenset({"nodes"})), nl=False)
    unknown = unknown_rates(found)
    if unknown:
        click.echo(
            f"\n{len(unknown)} {'rate is' if len(unknown) == 1 else 'rates are'} still unknown; paths that need one are"
            " refused until it is written or measured (hpcserve site measure):"
        )
        click.echo(text_table(("keys", "why"), [(one.where, one.why) for one in unknown]), nl=False)


site.add_command(show)


def _kind(fabric: Fabric, node: str) -> str:
    gpu = fabric.node_type(node).gpu
    return f"{gpu.count} x {gpu.model}"


def _by_leaf(fabric: Fabric) -> dict[str, list[str]]:
    """The nodes of each leaf, in the site's order; of each leaf of its rails where a node has several."""
    leaves: dict[str, list[str]] = {}
    for node in fabric.nodes:
        for leaf in fabric.leaves_of(node).values():
            leaves.setdefault(leaf, []).append(node)
    return leaves
