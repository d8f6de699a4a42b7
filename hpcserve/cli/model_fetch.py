"""`hpcserve model`, and its `fetch`: small models for trying things out."""

import os
from pathlib import Path

import click

from hpcserve.cli.progress import shown_progress
from hpcserve.errors import NotFoundError
from hpcserve.provision import MODEL_NAMES, cache_directory, engine_prefix, fetch_model, find_engine, model_directory

__all__ = ["model"]


@click.group()
def model() -> None:
    """Show a model's arithmetic; fetch a small model to try things out with."""


@model.command()
@click.argument("name", type=click.Choice(MODEL_NAMES))
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to make.  [default: models/NAME in hpcserve's cache]",
)
@click.option(
    "--engine",
    "prefix",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the engine environment, whose Python converts.  [default: engines/vllm-cpu in hpcserve's cache]",
)
def fetch(name: str, to: Path | None, prefix: Path | None) -> None:
    """Fetch the model NAME as a Hugging Face directory (about 25 s; nothing where it is there and unchanged)."""
    cache = cache_directory(os.environ)
    place = prefix or engine_prefix(cache)
    engine = find_engine(place)
    if engine is None:
        raise NotFoundError(
            f"no engine environment at {place}",
            remedy="run `hpcserve engine install` first: its Python converts the model",
        )
    with shown_progress() as report:
        folder = fetch_model(name, to or model_directory(name, cache), engine, report=report)
    click.echo(str(folder))
