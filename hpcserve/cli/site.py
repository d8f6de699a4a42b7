"""`hpcserve site`: the clusters that are known, and whether a site file is right."""

import json
from collections.abc import Callable

import click

from hpcserve.cli.options import examples, json_option, print_record
from hpcserve.deploy import find_site, list_sites, read_text
from hpcserve.draw import text_table
from hpcserve.errors import InputError
from hpcserve.fabric import fabric_of
from hpcserve.nouns import Site
from hpcserve.site import hosts_of, load_site

__all__ = ["site"]


@click.group()
def site() -> None:
    """List and check site files."""


@site.command("list", epilog=examples("hpcserve site list"))
@json_option
def list_(as_json: bool) -> None:
    """List the sites that --site takes by name, and where each comes from."""
    rows = []
    for name, path in list_sites().items():
        try:
            description = load_site(read_text(path), source=str(path)).description
        except InputError as error:
            description = f"has {len(error.mistakes)} mistakes: hpcserve site check {name}"
        rows.append((name, description, str(path)))
    if as_json:
        click.echo(
            json.dumps([{"name": name, "description": text, "file": file} for name, text, file in rows], indent=1)
        )
    else:
        click.echo(text_table(("site", "description", "file"), rows), nl=False)


@site.command(epilog=examples("hpcserve site check my-cluster.yaml", "hpcserve site check onebox"))
@click.argument("file", metavar="FILE|NAME")
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
        (leaf, str(len(nodes)), ", ".join(sorted({_kind(found, node) for node in nodes})))
        for leaf, nodes in _by_leaf(found, fabric.leaf_of).items()
    ]
    click.echo(text_table(("leaf", "nodes", "GPUs"), rows, right=frozenset({"nodes"})), nl=False)


def _kind(found: Site, node: str) -> str:
    gpu = hosts_of(found)[node].gpu
    return f"{gpu.count} x {gpu.model}"


def _by_leaf(found: Site, leaf_of: Callable[[str], str]) -> dict[str, list[str]]:
    leaves: dict[str, list[str]] = {}
    for node in hosts_of(found):
        leaves.setdefault(leaf_of(node), []).append(node)
    return leaves
