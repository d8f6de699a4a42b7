"""`hpcserve model show`: what a model keeps of a token, how it can be cut, and what fits."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click

from hpcserve.cli.model_fetch import model
from hpcserve.cli.model_files import QUANTISATION, find_config, weights_of
from hpcserve.cli.options import Figure, examples, json_option
from hpcserve.deploy import read_text
from hpcserve.draw import text_table
from hpcserve.errors import NotFoundError
from hpcserve.model import (
    Capacity,
    KvLayout,
    WeightsCount,
    capacity,
    explain,
    facts_of,
    layout_of,
    rank_bytes,
    stage_layers,
    tensor_parallel_pairs,
    tensor_parallel_sizes,
)

__all__ = ["model", "show"]

_SCHEMA = "hpcserve.model/1"
_GIB = 2**30


@model.command(
    epilog=examples(
        "hpcserve model show ~/models/Llama-3.1-8B",
        "hpcserve model show Qwen/Qwen3-8B --json",
        "hpcserve model show ./config.json --gpu-memory-gib 80 --utilisation 0.92 --tensor-parallel 2",
    )
)
@click.argument("name", metavar="PATH_OR_ID")
@click.option(
    "--gpu-memory-gib",
    type=Figure(min=0, max=1e9, min_open=True),
    help="Memory of one GPU: say what fits.",
)
@click.option(
    "--utilisation",
    type=Figure(min=0, max=1, min_open=True),
    help="Share of that memory which the engine may use (vLLM's --gpu-memory-utilization).",
)
@click.option("--tensor-parallel", type=click.IntRange(min=1), default=1, show_default=True, help="For what fits.")
@click.option("--pipeline-parallel", type=click.IntRange(min=1), default=1, show_default=True, help="For what fits.")
@click.option("--context", "context_tokens", type=click.IntRange(min=1), help="Also say how many such sequences fit.")
@json_option
def show(
    *,
    name: str,
    gpu_memory_gib: float | None,
    utilisation: float | None,
    tensor_parallel: int,
    pipeline_parallel: int,
    context_tokens: int | None,
    as_json: bool,
) -> None:
    """Print the KV arithmetic of the model PATH_OR_ID: a folder, a config.json, or a Hugging Face id that is cached.

    Nothing is downloaded. What the config does not say is refused, with the keys that are missing.
    """
    if (gpu_memory_gib is None) != (utilisation is None):
        raise click.UsageError("--gpu-memory-gib and --utilisation belong together: one alone says not what fits")
    config = find_config(name)
    text = read_text(config)
    side = config.with_name(QUANTISATION)
    layout = layout_of(
        text,
        source=str(config),
        quantisation_text=read_text(side) if side.is_file() else None,
        quantisation_source=str(side),
    )
    weights = weights_of(config, text)
    fits = None
    if gpu_memory_gib is not None and utilisation is not None:
        _check_cut(layout, tensor_parallel, pipeline_parallel)
        if weights.total_bytes is None:
            raise NotFoundError(
                f"what fits depends on the weights: {weights.source}", remedy="name a folder with weights"
            )
        fits = capacity(
            layout,
            layout.kv_dtype,
            memory_bytes=int(gpu_memory_gib * _GIB),
            utilisation=utilisation,
            weights_bytes=weights.total_bytes,
            tensor_parallel=tensor_parallel,
            stages=pipeline_parallel,
            context_tokens=context_tokens,
        )
    if as_json:
        click.echo(json.dumps(_record(config, layout, weights, fits), indent=1))
    else:
        click.echo(_page(config, layout, weights, fits), nl=False)


def _check_cut(layout: KvLayout, tensor_parallel: int, pipeline_parallel: int) -> None:
    sizes = tensor_parallel_sizes(layout)
    if tensor_parallel not in sizes:
        raise click.UsageError(f"--tensor-parallel {tensor_parallel}: this model can be cut into {_listed(sizes)}")
    if pipeline_parallel > len(layout.layers):
        raise click.UsageError(f"--pipeline-parallel {pipeline_parallel}: the model has {len(layout.layers)} layers")


def _record(config: Path, layout: KvLayout, weights: WeightsCount, fits: Capacity | None) -> Mapping[str, object]:
    return {
        "schema": _SCHEMA,
        "file": str(config),
        **facts_of(layout),
        "weights_bytes": weights.total_bytes,
        "weights_parameters": weights.parameters,
        "weights_source": weights.source,
        "capacity": None if fits is None else asdict(fits),
        "notes": list(layout.notes),
    }


def _page(config: Path, layout: KvLayout, weights: WeightsCount, fits: Capacity | None) -> str:
    context = "not in the config" if layout.context_tokens is None else f"{layout.context_tokens:,} tokens"
    size = "unknown" if weights.total_bytes is None else f"{weights.total_bytes:,} B"
    lines = [
        f"{config}: {layout.architecture}, {len(layout.layers)} layers, {layout.attention_heads} attention heads",
        f"Context {context}. Weights {size} ({weights.source}).",
        *explain(layout),
        "",
        _ranks_table(layout).rstrip("\n"),
        _pairs(layout),
        *_stages(layout),
    ]
    if fits is not None:
        lines.append(
            f"On one GPU at most {fits.kv_bytes:,} B are left for KV, activations not counted: {fits.tokens:,} tokens"
        )
        if fits.sequences is not None:
            lines.append(f"Sequences of that length that fit at once: {fits.sequences:,}")
    return "\n".join([*lines, *(f"note: {note}" for note in layout.notes)]) + "\n"


def _ranks_table(layout: KvLayout) -> str:
    whole = rank_bytes(layout, layout.dtype)
    rows = []
    for ranks in tensor_parallel_sizes(layout):
        each = rank_bytes(layout, layout.dtype, tensor_parallel=ranks)
        copies = ranks * each / whole if whole else 1
        rows.append((str(ranks), f"{each:,}", "" if copies == 1 else f"{copies:g} copies of the KV in all"))
    return text_table(
        ("TP", "KV bytes per token and rank", ""), rows, right=frozenset({"TP", "KV bytes per token and rank"})
    )


def _pairs(layout: KvLayout) -> str:
    pairs = tensor_parallel_pairs(layout)
    if not pairs:
        return "Prefill and decode need the same TP."
    return "Prefill and decode may differ in TP: " + ", ".join(f"{one}->{other}" for one, other in pairs)


def _stages(layout: KvLayout) -> tuple[str, ...]:
    layers = len(layout.layers)
    return (
        f"PP: 1 to {layers} stages; of 2, 4 and 8 stages the largest has "
        + ", ".join(str(max(stage_layers(layers, min(stages, layers)))) for stages in (2, 4, 8))
        + " layers. A decode worker that KV is handed to has PP 1 (vLLM's NIXL connector).",
    )


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))
