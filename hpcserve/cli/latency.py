"""`hpcserve latency`: how long a worker computes; its `show` and `list`."""

import difflib
import json
from dataclasses import asdict

import click

from hpcserve.cli.options import examples, json_option, print_record
from hpcserve.deploy import read_text, what_is_there
from hpcserve.discovery import typed_path
from hpcserve.draw import text_table
from hpcserve.errors import NotFoundError
from hpcserve.latency import NAMES, Chunk, LatencyModel, model_of, named, read_latency
from hpcserve.nouns import DecodeCurve, DecodeLine, LatencyFile, PrefillCurve, PrefillLine, Residual

__all__ = ["file_page", "latency", "latency_list", "latency_show"]

_PROFILE_SCHEMA = "hpcserve.latency-profile/1"
_PROMPTS = (128, 512, 1024, 2048, 4096, 8192)
_BATCHES = (1, 8, 32, 64, 128, 256)
_CONTEXT_TOKENS = 1024


@click.group()
def latency() -> None:
    """How long a worker computes: fitted from runs, sampled from aiconfigurator, or published."""


@latency.command(
    "show",
    epilog=examples("hpcserve latency show qwen3-a100.json", "hpcserve latency show distserve-opt-13b-a100-tp2"),
)
@click.argument("name", metavar="FILE|NAME")
@json_option
def latency_show(*, name: str, as_json: bool) -> None:
    """Print a latency file, or a published profile (`hpcserve latency list`), and what it says of typical steps."""
    path = typed_path(name)
    there = what_is_there(path)
    if name in NAMES and not there:
        model = named(name)
        if as_json:
            click.echo(json.dumps({"schema": _PROFILE_SCHEMA, "name": name, **asdict(model)}, indent=1))
        else:
            click.echo(f"{name}: {model.source}\n{_capacity(model)}\n\n{_times(model)}", nl=False)
        return
    if not there:
        near = difflib.get_close_matches(name, NAMES, n=1)
        raise NotFoundError(
            f"{name} is no file and no published profile",
            remedy=f"did you mean {near[0]}?" if near else "`hpcserve latency list` has the names",
        )
    file = read_latency(read_text(path), source=str(path))
    if as_json:
        print_record(file)
    else:
        click.echo(file_page(file), nl=False)


@latency.command("list", epilog=examples("hpcserve latency list"))
def latency_list() -> None:
    """Print the names of the published profiles, one a line, with where they come from."""
    for name in NAMES:
        click.echo(f"{name}\t{named(name).source}")


def file_page(file: LatencyFile) -> str:
    """A latency file as people read it."""
    model = model_of(file)
    lines = [
        f"{file.model} on {file.gpu} with {file.engine}: {file.kind}",
        file.source,
        _capacity(model),
        f"prefill, {_cut(file.prefill)}: {_prefill(file)}{_left(file.prefill.residual)}",
        f"decode, {_cut(file.decode)}: {_decode(file)}{_left(file.decode.residual)}",
        *(f"note: {note}" for note in file.notes),
    ]
    return "\n".join(lines) + "\n\n" + _times(model)


def _cut(phase: PrefillLine | PrefillCurve | DecodeLine | DecodeCurve) -> str:
    stages = f" PP {phase.pipeline_parallel}" if phase.pipeline_parallel > 1 else ""
    return f"TP {phase.tensor_parallel}{stages}"


def _capacity(model: LatencyModel) -> str:
    return "KV capacity unknown" if model.kv_tokens is None else f"KV capacity {model.kv_tokens:,} tokens"


def _prefill(file: LatencyFile) -> str:
    prefill = file.prefill
    attention = f"{prefill.ms_per_token2:.6g} ms per token and token before it"
    if isinstance(prefill, PrefillLine):
        return f"{prefill.base_ms:.6g} ms + {prefill.ms_per_token:.6g} ms per token + {attention}"
    return f"a curve of {len(prefill.points)} points up to {prefill.points[-1].at:,} tokens + {attention}"


def _decode(file: LatencyFile) -> str:
    decode = file.decode
    context = f"{decode.ms_per_context_token:.6g} ms per token of context"
    if isinstance(decode, DecodeLine):
        return f"{decode.base_ms:.6g} ms + {decode.ms_per_sequence:.6g} ms per sequence + {context}"
    return f"a curve of {len(decode.points)} points up to {decode.points[-1].at} sequences + {context}"


def _left(residual: Residual | None) -> str:
    if residual is None:
        return ""
    return f" (off by {residual.median:.1%} in the median, {residual.worst:.1%} at worst, n = {residual.n})"


def _times(model: LatencyModel) -> str:
    prefill = [(f"{tokens:,}", f"{model.prefill_ms((Chunk(tokens, 0),)):.1f}") for tokens in _PROMPTS]
    decode = [(str(count), f"{model.decode_ms(count, count * _CONTEXT_TOKENS):.1f}") for count in _BATCHES]
    rows = [(*one, *other) for one, other in zip(prefill, decode, strict=True)]
    columns = ("prompt tokens", "prefill ms", f"sequences of {_CONTEXT_TOKENS}", "decode step ms")
    return text_table(columns, rows, right=frozenset(columns))
