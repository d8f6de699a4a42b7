"""The launch script of one worker."""

from collections.abc import Mapping
from typing import Literal

from hpcserve.engines import EngineCommand
from hpcserve.nouns import JobFile, PlannedWorker, Site
from hpcserve.render.runtime import engine_runtime
from hpcserve.render.templates import render_template

__all__ = ["render_worker"]


def render_worker(
    *,
    worker: PlannedWorker,
    command: EngineCommand,
    engine: Literal["vllm", "sim"],
    site: Site,
    templates: Mapping[str, str],
    directory: str,
    why: str,
) -> JobFile:
    """`workers/ID.sh`: starts the worker on its node, in the engine's runtime, on its cores; runnable by hand.

    `why` says in words why the worker sits there. Raises InputError, with the template's line, for a value that no
    shell can carry.
    """
    nics = dict.fromkeys(nic for rank in worker.ranks for nic in rank.nics)
    cores = tuple(dict.fromkeys(core for rank in worker.ranks for core in rank.cores))
    about = (
        f"{worker.id}: {worker.role} worker on {worker.node} of {site.name},"
        f" GPU {_numbers(worker.gpus)}, NIC {', '.join(nics) or 'none'}, cores {_numbers(cores)}\n\n{why}"
    )
    text = render_template(
        "worker.sh.j2",
        templates=templates,
        values={
            "about": about,
            "node": worker.node,
            "worker": worker.id,
            "directory": directory,
            "runtime": engine_runtime(engine),
            "env": tuple(sorted(command.env.items())),
            "key_variable": command.key_variable,
            "binding": ("taskset", "--cpu-list", _numbers(cores)) if cores else (),
            "argv": command.argv,
        },
    )
    return JobFile(path=f"workers/{worker.id}.sh", text=text, mode=0o700)


def _numbers(values: tuple[int, ...]) -> str:
    """Numbers as `taskset --cpu-list` takes them: `0-3,8`."""
    parts: list[list[int]] = []
    for value in sorted(values):
        if parts and value == parts[-1][-1] + 1:
            parts[-1][1:] = [value]
        else:
            parts.append([value])
    return ",".join("-".join(map(str, part)) for part in parts) or "none"
