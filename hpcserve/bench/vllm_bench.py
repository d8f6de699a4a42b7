"""`vllm bench serve` as the load generator: its command, and its detailed result read into samples."""

import asyncio
import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpcserve.bench.record import Point
from hpcserve.bench.stretch import Offered
from hpcserve.bench.target import Target
from hpcserve.errors import ServiceError
from hpcserve.nouns import Role, Sample

__all__ = ["VllmBenchGenerator", "bench_argv", "offered_of"]

_LONGEST_DRAIN_S = 600.0
"""Start-up and the time after the last arrival together; a service that needs longer is not being measured."""

_MS_PER_S = 1e3
_NAME = "vllm bench serve"
_LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONHASHSEED": "0"}


class VllmBenchGenerator:
    """Runs `vllm bench serve` in the engine's runtime. `model_directory` holds the tokenizer."""

    def __init__(self, *, model_directory: Path) -> None:
        self._model_directory = model_directory

    async def offer(self, *, point: Point, target: Target) -> Offered:
        """See `Generator`. The API key goes by environment: arguments can be read by everybody on the node."""
        result = target.directory / "bench" / f"{point.id}.json"
        result.parent.mkdir(mode=0o700, exist_ok=True)
        result.unlink(missing_ok=True)
        warm_ups = sum(worker.role != Role.DECODE for worker in target.plan.workers)
        argv = bench_argv(point=point, target=target, tokenizer=self._model_directory, result=result, warm_ups=warm_ups)
        log = target.directory / "logs" / f"bench.{point.id}.log"
        failure = await _run(argv, directory=target.directory, key=target.api_key, log=log, limit_s=_limit_s(point))
        offered = Offered(generator=_NAME, samples=(), duration_s=0.0)
        if not failure:
            try:
                offered = offered_of(json.loads(result.read_bytes()))
            except (OSError, ValueError, ServiceError) as error:
                failure = f"the result of vllm bench serve cannot be used: {error}"
        versions = sorted({each.engine_version for each in target.endpoints.values()})
        return dataclasses.replace(
            offered,
            generator=f"{_NAME} {', '.join(versions)}",
            argv=argv,
            warm_ups=warm_ups,
            failures=(f"{failure} (see {log})",) if failure else (),
        )


def bench_argv(*, point: Point, target: Target, tokenizer: Path, result: Path, warm_ups: int) -> tuple[str, ...]:
    """The command; names as of vLLM 0.32. `--num-warmups` sends the first prompt that often before the clock starts."""
    workload = target.service.workload
    options = {
        "backend": "openai",
        "base-url": target.url,
        "endpoint": "/v1/completions",
        "model": target.service.served_name,
        "tokenizer": str(tokenizer),
        "dataset-name": "random",
        "random-prefix-len": str(workload.cached_prefix_tokens),
        "random-input-len": str(workload.input_tokens - workload.cached_prefix_tokens),
        "random-output-len": str(workload.output_tokens),
        "num-prompts": str(point.requests),
        "num-warmups": str(warm_ups),
        "request-rate": f"{point.request_rate:g}",
        "burstiness": "1.0",
        "seed": str(point.seed),
        "temperature": "0",
        "result-dir": str(result.parent),
        "result-filename": result.name,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    flags = ("--ignore-eos", "--save-result", "--save-detailed", "--disable-tqdm")
    return ("bash", "runtimes/vllm.sh", "vllm", "bench", "serve", *words, *flags)


def offered_of(result: Mapping[str, Any]) -> Offered:
    """The detailed JSON of `vllm bench serve` (0.32) as samples; times in it are seconds of one clock.

    The clock starts at an instant that is not written down: the end of the last answer minus `duration`. Raises
    ServiceError where a list is missing or of another length than the requests.
    """
    missing = [name for name in _LISTS if name not in result]
    if missing:
        raise ServiceError(f"it lacks {', '.join(missing)}", remedy="run it with --save-detailed")
    count = int(result["num_prompts"])
    if any(len(result[name]) != count for name in _LISTS):
        raise ServiceError(f"its lists do not hold {count} requests each", remedy="the file is not whole")
    duration_s = float(result["duration"])
    rows = [dict(zip(_LISTS, row, strict=True)) for row in zip(*(result[name] for name in _LISTS), strict=True)]
    ends = [row["start_times"] + row["ttfts"] + math.fsum(row["itls"]) for row in rows]
    origin_s = max(ends, default=0.0) - duration_s
    samples = tuple(_sample(row, origin_s=origin_s) for row in rows)
    last_s = max((sample.start_s for sample in samples), default=0.0)
    return Offered(
        generator=_NAME,
        samples=samples,
        duration_s=duration_s,
        dispatch_delays_ms=[float(delay) * _MS_PER_S for delay in result.get("queue_times", ())],
        achieved_rate=count / last_s if last_s > 0 else None,
    )


def _sample(row: Mapping[str, Any], *, origin_s: float) -> Sample:
    tokens = int(row["output_lens"])
    came = not row["errors"] and tokens > 0
    last_line = str(row["errors"]).strip().rpartition("\n")[2]
    return Sample(
        start_s=row["start_times"] - origin_s,
        input_tokens=row["input_lens"],
        output_tokens=tokens if came else 0,
        ttft_ms=row["ttfts"] * _MS_PER_S if came else None,
        tpot_ms=math.fsum(row["itls"]) * _MS_PER_S / (tokens - 1) if came and tokens > 1 else None,
        error="" if came else last_line or "no token came",
    )


def _limit_s(point: Point) -> float:
    return _LONGEST_DRAIN_S + point.requests / (point.request_rate or 1.0)


async def _run(argv: tuple[str, ...], *, directory: Path, key: str, log: Path, limit_s: float) -> str:
    """Run it to its end; returns why it failed, or nothing. A run that is cancelled takes the process with it."""
    environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *argv,
            cwd=directory,
            env={**environment, **_ENVIRONMENT, "OPENAI_API_KEY": key},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            code = await asyncio.wait_for(process.wait(), limit_s)
        except TimeoutError:
            return f"vllm bench serve was not done after {limit_s:.0f} s"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return "" if code == 0 else f"vllm bench serve ended with {code}"
