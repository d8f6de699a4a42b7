"""What this node has: addresses, cores, granted GPUs, the installed engine, ports that it holds."""

import asyncio
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from hpcserve.agent.gpus import SMI_COMMAND, granted_gpus, granted_slots, seen_gpus
from hpcserve.agent.life import fresh_generation, is_of
from hpcserve.agent.network import address_on
from hpcserve.agent.pace import Pace
from hpcserve.agent.ports import Ports, reserve
from hpcserve.discovery import read_dir_record
from hpcserve.engines import Adapter
from hpcserve.errors import MissingToolError, ServiceError
from hpcserve.nouns import EngineFacts, GrantedGpu, GrantedNode, NodeType, Service, Site
from hpcserve.site import hosts_of
from hpcserve.site.host_text import parse_ip_addresses
from hpcserve.wire import UnreadableRecordError, decode_record

__all__ = ["examine"]

_CPU_MODEL = "cpu"
_SHOWN = 400


async def examine(
    name: str,
    *,
    job_directory: Path,
    life: str,
    site: Site,
    service: Service,
    adapter: Adapter,
    environment: Mapping[str, str],
    is_head: bool,
    pace: Pace,
) -> tuple[GrantedNode, Ports]:
    """This node, and the ports that are held for its workers from now on.

    An agent that was restarted finds what it found before, with the same ports. Raises ServiceError or
    MissingToolError where the node is not what the site file says, InputError where `ip` prints no list of interfaces.
    """
    known = _known(job_directory, name, life)
    if known is not None:
        ports = Ports((known.control_address, known.data_address), known.ports)
        ports.hold()  # what cannot be held belongs to workers that live: each worker asks again before it is started
        fresh = {"agent_pid": os.getpid(), "generation": fresh_generation(life)}
        return known.model_copy(update=fresh), ports
    kind = hosts_of(site).get(name)
    if kind is None:
        raise ServiceError(
            f"node {name} is not in the site file of {site.name}", remedy="add it under `nodes` in the site file"
        )
    asked = ("ip", "-json", "address", "show")
    interfaces = parse_ip_addresses(await _output(asked, timeout_s=pace.facts_s), f"{name}: {' '.join(asked)}")
    control = address_on(site.networks.control, interfaces, called="control")
    data = address_on(site.networks.data, interfaces, called="data")
    gpus = await _gpus(kind, environment, pace)
    engine = await _engine(job_directory, service, adapter, pace)
    # Of each slot's block the first port is for HTTP, the next for one side channel per rank (a worker has no more
    # ranks than the node has slots), then two for KV events. The last block is for a router.
    sizes = [3 + len(gpus)] * len(gpus) + [1]
    ports = reserve((control, data), sizes, fixed_last=service.router.port if is_head else None)
    node = GrantedNode(
        name=name,
        hostname=socket.gethostname(),
        control_address=control,
        data_address=data,
        cores=tuple(sorted(os.sched_getaffinity(0))),
        gpus=gpus,
        engine=engine,
        ports=ports.blocks,
        agent_pid=os.getpid(),
        generation=fresh_generation(life),
    )
    return node, ports


def _known(job_directory: Path, name: str, life: str) -> GrantedNode | None:
    try:
        node = read_dir_record(job_directory / "nodes", f"{name}.json", GrantedNode)
    except UnreadableRecordError:
        return None  # as good as none: it is found out again and written anew
    return node if node is not None and is_of(life, node.generation) else None


async def _gpus(kind: NodeType, environment: Mapping[str, str], pace: Pace) -> tuple[GrantedGpu, ...]:
    if kind.gpu.model == _CPU_MODEL:
        gpus = granted_slots(environment, count=kind.gpu.count)
    else:
        seen = seen_gpus(await _output(SMI_COMMAND, timeout_s=pace.facts_s))
        gpus = granted_gpus(seen, environment, count=kind.gpu.count)
    if not gpus:
        raise ServiceError(
            "no GPU was granted on this node",
            remedy="see slurm.gpu_request in the site file and the job's #SBATCH lines",
        )
    return gpus


async def _engine(job_directory: Path, service: Service, adapter: Adapter, pace: Pace) -> EngineFacts:
    """What the engine says of itself, asked inside the runtime that its workers start in."""
    runtime = "hpcserve" if service.engine == "sim" else service.engine
    command = ("bash", str(job_directory / "runtimes" / f"{runtime}.sh"), *adapter.facts_command)
    printed = await _output(command, timeout_s=pace.facts_s)
    # modules and container runtimes may print lines of their own before
    last = printed.strip().rpartition("\n")[2]
    try:
        return decode_record(EngineFacts, last.encode())
    except UnreadableRecordError as error:
        raise ServiceError(
            f"the engine's facts are {error}: {printed[-_SHOWN:]!r}", remedy=f"run {' '.join(command)} on that node"
        ) from None


async def _output(command: tuple[str, ...], *, timeout_s: float) -> str:
    """What a command prints; raises MissingToolError where there is none, ServiceError where it fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except FileNotFoundError:
        raise MissingToolError(f"{command[0]} is not installed on this node") from None
    try:
        printed, complaints = await asyncio.wait_for(process.communicate(), timeout=timeout_s)
    except TimeoutError:
        raise ServiceError(f"`{' '.join(command)}` did not end in {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        said = complaints.decode(errors="replace").strip() or printed.decode(errors="replace").strip()
        raise ServiceError(
            f"`{' '.join(command)}` ended with {process.returncode}: {said[-_SHOWN:] or 'it said nothing'}"
        )
    return printed.decode(errors="replace")
