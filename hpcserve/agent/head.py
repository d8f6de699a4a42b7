"""What only the head node does: place the workers on the nodes that were granted, once in a life of the job."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path

from hpcserve.agent.fitness import unfit_nodes
from hpcserve.agent.life import DECIDED, Decided, is_of
from hpcserve.agent.pace import Pace
from hpcserve.discovery import await_records, read_dir_record, read_records, remove_tree, typed_path, write_record
from hpcserve.engines import Adapter, peer_gpus, transfer_rates
from hpcserve.errors import NotFoundError, ServiceError
from hpcserve.fabric import fabric_of
from hpcserve.model import shape_of
from hpcserve.nouns import (
    Allocation,
    Endpoint,
    GrantedNode,
    Heartbeat,
    JobFile,
    Measurement,
    ModelShape,
    Plan,
    PlannedWorker,
    Service,
    Site,
)
from hpcserve.placement import place
from hpcserve.render import render_worker
from hpcserve.site import expand_hosts

__all__ = ["decide", "granted_names"]

_OF_THE_ROUTER = ("router.leader", "router.json", "router.state.json")


def granted_names(asked: Plan, environment: Mapping[str, str], *, head: str, count: int) -> tuple[str, ...]:
    """The nodes of this job in the scheduler's order: Slurm's list, or the plan's nodes without Slurm; head first.

    Raises ServiceError where that list is not of `count` nodes with the head in it.
    """
    listed = _listed(asked, environment)
    names = expand_hosts(listed) if listed else asked.nodes
    if len(names) != count or head not in names:
        raise ServiceError(
            f"{count} nodes with head {head} were said to be granted, the scheduler names {', '.join(names)}"
        )
    return (head, *(name for name in names if name != head))


def _listed(asked: Plan, environment: Mapping[str, str]) -> str | None:
    """Slurm's host list, of all components of a job that has several: each is a variable of its own (sbatch(1))."""
    if asked.further_asks:
        components = (environment.get(f"SLURM_JOB_NODELIST_HET_GROUP_{number}") for number in range(len(asked.asks)))
        return ",".join(filter(None, components))
    # The step's own nodes: an allocation may be larger than what one service was given of it (srun(1)).
    return environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST")


def _model_directory(service: Service, site: Site) -> Path:
    """Where the model lies: as written, below the home, or below the site's models."""
    return typed_path(site.paths.models) / typed_path(service.model)


async def decide(
    *,
    job_directory: Path,
    life: str,
    asked: Plan,
    names: tuple[str, ...],
    site: Site,
    service: Service,
    adapter: Adapter,
    pace: Pace,
) -> None:
    """Await every node's report, place, write `plan.json` and `workers/*.sh`, and last of all `decided.json`.

    Nodes that refused themselves are left out. Raises ServiceError where those are more than the spares,
    TimeoutExpiredError naming the nodes that did not report, PlacementError where what was granted does not do.
    """
    spare = len(names) - len(asked.nodes)
    reports = await await_records(
        job_directory,
        "nodes",
        names,
        GrantedNode,
        deadline_s=pace.nodes_s,
        accept=lambda node: is_of(life, node.generation),
        excused=lambda: unfit_nodes(job_directory, life, spare=spare),
    )
    allocation = Allocation(nodes=tuple(reports[name] for name in names if name in reports))
    await asyncio.to_thread(
        _write,
        job_directory=job_directory,
        life=life,
        asked=asked,
        allocation=allocation,
        site=site,
        service=service,
        adapter=adapter,
    )


def _write(
    *,
    job_directory: Path,
    life: str,
    asked: Plan,
    allocation: Allocation,
    site: Site,
    service: Service,
    adapter: Adapter,
) -> None:
    model = _model_directory(service, site)
    plan = place(
        fabric=fabric_of(site, measured=read_dir_record(job_directory, "measured.json", Measurement)),
        site=site,
        shape=_shape(service, model),
        service=service,
        allocation=allocation,
        asked=asked,
    )
    templates = {
        path.name: path.read_text(encoding="utf-8") for path in sorted((job_directory / "templates").iterdir())
    }
    scripts = [
        render_worker(
            worker=worker,
            command=adapter.command(
                worker=worker,
                service=service,
                site=site,
                node=allocation.node(worker.node),
                model_dir=str(model),
                peers=peer_gpus(plan, worker),
                rates=transfer_rates(plan, allocation, worker),
            ),
            engine=service.engine,
            site=site,
            templates=templates,
            directory=str(job_directory),
            why=_why(plan, worker),
        )
        for worker in plan.workers
    ]
    _clear_former_life(job_directory, life)
    for script in scripts:
        _write_script(job_directory, script)
    write_record(job_directory / "plan.json", plan)
    write_record(job_directory / DECIDED, Decided(life=life))


def _clear_former_life(job_directory: Path, life: str) -> None:
    """Remove what an earlier life said, its go-ahead first: nothing of this life has been said yet but `nodes/`."""
    old = [job_directory / name for name in (DECIDED, *_OF_THE_ROUTER)]
    endpoints = read_records(job_directory, "endpoints", Endpoint).records
    heartbeats = read_records(job_directory, "heartbeats", Heartbeat).records
    said = {f"endpoints/{name}.json": record.generation for name, record in endpoints.items()}
    said |= {f"heartbeats/{name}.json": record.generation for name, record in heartbeats.items()}
    old += [job_directory / path for path, generation in said.items() if not is_of(life, generation)]
    for line in [line for path in old for line in remove_tree(path)]:
        raise ServiceError(line, remedy="remove it by hand")


def _write_script(job_directory: Path, script: JobFile) -> None:
    path = job_directory / script.path
    with contextlib.suppress(FileNotFoundError):
        path.unlink()  # never written into while an earlier life's shell may still read it
    path.write_text(script.text, encoding="utf-8")
    path.chmod(script.mode)


def _shape(service: Service, model: Path) -> ModelShape:
    config = model / "config.json"
    try:
        text = config.read_text(encoding="utf-8")
        weights = sum(path.stat().st_size for path in model.glob("*.safetensors"))
        side = model / "hf_quant_config.json"
        quantisation = side.read_text(encoding="utf-8", errors="replace") if side.is_file() else None
    except OSError as error:
        raise NotFoundError(
            f"the model's {config} cannot be read on this node: {error.strerror}",
            remedy="paths.models of the site must be the same directory on every node",
        ) from None
    return shape_of(
        text,
        name=service.served_name,
        source=str(config),
        weights_bytes=weights or None,
        quantisation_text=quantisation,
    )


def _why(plan: Plan, worker: PlannedWorker) -> str:
    """The worker's paths and the verdict, in words, for a person who opens the script."""
    paths = [
        f"KV {path.prefill} -> {path.decode}: {path.distance}, {path.gb_per_s:.3g} GB/s,"
        f" {path.transfer_ms:.1f} ms predicted for one typical request, over {', '.join(path.hops) or 'no link'}"
        for path in plan.paths
        if worker.id in {path.prefill, path.decode}
    ]
    return "\n".join([*paths, *plan.verdict.reasons])
