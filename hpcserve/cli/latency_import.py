"""`hpcserve latency splitwise` and `aiconfigurator`: others' profiles -> latency files."""

import importlib
import logging
from pathlib import Path
from typing import Any

import click

from hpcserve.cli.latency import latency
from hpcserve.cli.latency_fit import hand_over, output_option
from hpcserve.cli.options import examples, json_option
from hpcserve.deploy import check_place, read_text
from hpcserve.errors import HpcserveError, MissingToolError, NotFoundError
from hpcserve.latency import sampled_latency, splitwise_latency

__all__ = ["latency", "latency_aiconfigurator", "latency_splitwise"]

_REMEDY = "name another file with --output"
_PACKAGE = "aiconfigurator_core"


@latency.command(
    "splitwise",
    epilog=examples(
        "hpcserve latency splitwise perf_model.csv --model llama2-70b --hardware h100-80gb --tensor-parallel 8"
    ),
)
@click.argument("table", metavar="CSV", type=click.Path(path_type=Path))
@click.option("--model", required=True, help="As the table names it: llama2-70b, bloom-176b.")
@click.option("--hardware", required=True, help="As the table names it: a100-80gb, h100-80gb.")
@click.option("--tensor-parallel", type=click.IntRange(min=1), required=True)
@output_option
@json_option
def latency_splitwise(
    *, table: Path, model: str, hardware: str, tensor_parallel: int, output: Path | None, as_json: bool
) -> None:
    """Make a latency file of a profile in Splitwise's published table, data/perf_model.csv of splitwise-sim."""
    if output is not None:
        check_place(output, remedy=_REMEDY)
    made = splitwise_latency(
        read_text(table), source=str(table), model=model, hardware=hardware, tensor_parallel=tensor_parallel
    )
    hand_over(made, output=output, as_json=as_json)


@latency.command(
    "aiconfigurator",
    epilog=examples(
        "hpcserve latency aiconfigurator Qwen/Qwen3-32B --system h100_sxm --tensor-parallel 2 --output qwen3-32b.json"
    ),
)
@click.argument("model", metavar="MODEL")
@click.option(
    "--system", required=True, help="GPU as aiconfigurator names it: a100_sxm, h100_sxm, h200_sxm, gb200, ..."
)
@click.option("--engine", type=click.Choice(("vllm", "sglang", "trtllm")), default="vllm", show_default=True)
@click.option("--tensor-parallel", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--expert-parallel", is_flag=True, help="Experts are dealt out to the ranks, not each cut.")
@click.option("--most-tokens", type=click.IntRange(min=1024), default=32768, show_default=True, help="Longest context.")
@click.option("--kv-tokens", type=click.IntRange(min=1), help="KV capacity of one worker (`hpcserve model show`).")
@output_option
@json_option
def latency_aiconfigurator(
    *,
    model: str,
    system: str,
    engine: str,
    tensor_parallel: int,
    expert_parallel: bool,
    most_tokens: int,
    kv_tokens: int | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Make a latency file of what NVIDIA's aiconfigurator says of MODEL on a GPU, from its database of measurements.

    MODEL is a Hugging Face id or a folder with config.json. The package has the configs of many models with it, and
    fetches others' from Hugging Face.
    """
    if output is not None:
        check_place(output, remedy=_REMEDY)
    sdk, databases = _package()
    logging.getLogger(_PACKAGE).setLevel(logging.ERROR)
    there = databases.get_supported_databases()
    if engine not in there.get(system, {}):
        able = sorted(name for name, engines in there.items() if engine in engines)
        raise NotFoundError(
            f"aiconfigurator has no measurements of {engine} on {system}", remedy=f"it has {', '.join(able)}"
        )
    try:
        version = databases.resolve_query_version(system, engine, "current", systems_paths=None)
        experts = {"moe_ep_size" if expert_parallel else "moe_tp_size": tensor_parallel}
        times = sdk.EngineHandle.compile(
            model, system, engine, backend_version=version, tp_size=tensor_parallel, **experts
        )
        made = sampled_latency(
            times,
            model=model,
            gpu=system,
            engine=f"{engine} {version}",
            source=f"aiconfigurator's database of {engine} {version} on {system}, TP {tensor_parallel}"
            + ", experts dealt out" * expert_parallel,
            tensor_parallel=tensor_parallel,
            kv_tokens=kv_tokens,
            most_tokens=most_tokens,
        )
    except (AttributeError, TypeError) as error:
        raise MissingToolError(
            f"this aiconfigurator has another interface than the one that is known, of 0.12: {error}",
            remedy="pip install 'aiconfigurator-core==0.12.*'",
        ) from error
    except Exception as error:  # its errors have no root of their own
        said = " ".join(str(error).split())
        raise HpcserveError(
            f"aiconfigurator cannot say it for {model} at TP {tensor_parallel}: {said}",
            remedy="name another model, TP or engine",
        ) from error
    hand_over(made, output=output, as_json=as_json)


def _package() -> tuple[Any, Any]:
    """The SDK of aiconfigurator and its databases; imported here, as it is an extra and takes a while."""
    try:
        return importlib.import_module(f"{_PACKAGE}.sdk"), importlib.import_module(f"{_PACKAGE}.sdk.perf_database")
    except ImportError as error:
        raise MissingToolError(
            f"aiconfigurator is not installed ({error})", remedy="pip install 'hpcserve[aiconfigurator]'"
        ) from None
