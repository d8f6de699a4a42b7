"""What an agent does before its first worker starts: read the inputs, report the node, have or await the plan."""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcserve.agent.fitness import refusal_of
from hpcserve.agent.head import decide, granted_names
from hpcserve.agent.life import is_decided, is_of
from hpcserve.agent.node import examine
from hpcserve.agent.pace import Pace
from hpcserve.agent.processes import end_leftovers
from hpcserve.agent.station import LOG, Station
from hpcserve.discovery import read_dir_record, write_record
from hpcserve.engines import Adapter, adapter_for
from hpcserve.errors import NotFoundError, TimeoutExpiredError
from hpcserve.nouns import Plan, Service, Site
from hpcserve.site import load_service, load_site
from hpcserve.wire import UnreadableRecordError

__all__ = ["Options", "prepare"]

_FOLDERS = ("nodes", "workers", "endpoints", "heartbeats", "logs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Which part of which job this agent runs."""

    job: Path
    node: str
    nodes: int
    head: bool
    life: str


async def prepare(options: Options, *, environment: Mapping[str, str], pace: Pace) -> tuple[Station | None, Plan]:
    """The node's station, reported in `nodes/`, and the plan of this life, which the head node makes.

    No station where the node is unfit and the job has spares; a head node that is unfit still makes the plan.

    Raises an HpcserveError where the job cannot be: inputs, node, engine, grant or plan are not what they must be.
    """
    for folder in _FOLDERS:
        (options.job / folder).mkdir(mode=0o700, exist_ok=True)
    ended = await end_leftovers(
        options.job / "workers",
        node=options.node,
        terminate_s=pace.terminate_s,
        spare=lambda generation: is_of(options.life, generation),
    )
    if ended:
        LOG.warning("%s: ended what an earlier life of the job left: %s", options.node, ", ".join(ended))
    site, service = _inputs(options.job)
    adapter = adapter_for(service.engine)
    unfit = await refusal_of(
        options.job, options.node, options.life, site=site, service=service, environment=environment
    )
    if unfit is not None:
        return None, await _plan(
            options, site=site, service=service, adapter=adapter, environment=environment, pace=pace
        )
    node, ports = await examine(
        options.node,
        job_directory=options.job,
        life=options.life,
        site=site,
        service=service,
        adapter=adapter,
        environment=environment,
        is_head=options.head,
        pace=pace,
    )
    write_record(options.job / "nodes" / f"{options.node}.json", node)
    LOG.info("%s: %d slots, control %s, data %s", node.name, len(node.gpus), node.control_address, node.data_address)
    plan = await _plan(options, site=site, service=service, adapter=adapter, environment=environment, pace=pace)
    station = Station(
        job_directory=options.job,
        life=options.life,
        node=node,
        service=service,
        adapter=adapter,
        engine_key=_text(options.job / "keys" / "engine.key").strip(),
        ports=ports,
        pace=pace,
    )
    return station, plan


async def _plan(
    options: Options,
    *,
    site: Site,
    service: Service,
    adapter: Adapter,
    environment: Mapping[str, str],
    pace: Pace,
) -> Plan:
    """The plan of this life: made here on the head node, awaited elsewhere."""
    plan = _decided_plan(options)
    if plan is None and options.head:
        asked = read_dir_record(options.job, "plan.asked.json", Plan)
        if asked is None:
            raise NotFoundError(f"{options.job} has no plan.asked.json", remedy="submit the service again")
        await decide(
            job_directory=options.job,
            life=options.life,
            asked=asked,
            names=granted_names(asked, environment, head=options.node, count=options.nodes),
            site=site,
            service=service,
            adapter=adapter,
            pace=pace,
        )
    return plan if plan is not None else await _await_plan(options, pace)


def _inputs(job: Path) -> tuple[Site, Service]:
    """The job's own copies of its inputs; raises InputError with every mistake, NotFoundError where one is missing.

    Raises OSError where the file system fails otherwise.
    """
    site = load_site(_text(job / "site.yaml"), source=str(job / "site.yaml"))
    return site, load_service(_text(job / "service.yaml"), source=str(job / "service.yaml"), site=site)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:  # any other trouble of the file system may pass: the agent is started again
        raise NotFoundError(f"{path}: {error.strerror}", remedy="submit the service again") from None


def _decided_plan(options: Options) -> Plan | None:
    """The plan of this life, once it is complete; None before. Raises OSError."""
    if not is_decided(options.job, options.life):
        return None
    try:
        return read_dir_record(options.job, "plan.json", Plan)
    except UnreadableRecordError:
        return None


async def _await_plan(options: Options, pace: Pace) -> Plan:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + pace.plan_s
    while True:
        with contextlib.suppress(OSError):  # a listing that fails for a while is a listing without the plan
            plan = await asyncio.to_thread(_decided_plan, options)
            if plan is not None:
                return plan
        if loop.time() > deadline:
            raise TimeoutExpiredError(
                f"no plan from the head node after {pace.plan_s:.0f} s", remedy=f"see {options.job}/logs/agent.*.log"
            )
        await asyncio.sleep(pace.plan_poll_s)
