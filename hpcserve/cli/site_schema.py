"""`hpcserve site schema`: the JSON Schema of site files, for editors."""

from importlib.resources import files

import click

from hpcserve.cli.options import examples

__all__ = ["site_schema"]


@click.command(
    "schema",
    epilog=examples("hpcserve site schema > site.schema.json", "hpcserve site schema | jq .properties"),
)
def site_schema() -> None:
    """Print the JSON Schema of site files; an editor shows with it what each key means and takes.

    In VS Code with the YAML extension, or any editor with yaml-language-server, write above a site:
    `# yaml-language-server: $schema=site.schema.json`.
    """
    click.echo(files("hpcserve.nouns").joinpath("site.schema.json").read_text(encoding="utf-8"), nl=False)
