"""The router's process, from its arguments to its end."""

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from hpcserve.discovery import Leader, Watch, claim_leadership, read_dir_record, start_ticks, write_record
from hpcserve.engines import adapter_for, keeps_prefixes
from hpcserve.errors import HpcserveError, ServiceError
from hpcserve.nouns import Plan, RouterAddress, RouterState, Service
from hpcserve.router.access_log import AccessLog
from hpcserve.router.arrivals import Arrivals
from hpcserve.router.counters import CounterReader
from hpcserve.router.desk import Desk, Limits
from hpcserve.router.key_file import KeyFile
from hpcserve.router.kv_setup import KvParts
from hpcserve.router.log import Log
from hpcserve.router.metrics import Metrics
from hpcserve.router.pool import Pools
from hpcserve.router.prove import Prover
from hpcserve.router.reports import Reports
from hpcserve.router.roster import Roster
from hpcserve.router.session import Session
from hpcserve.router.slots import LinkSlots
from hpcserve.router.stalls import Stalls
from hpcserve.router.watching import Watcher
from hpcserve.routing import preferences_of
from hpcserve.site import load_service, load_site
from hpcserve.wire import UnreadableRecordError, decode_record

__all__ = ["handoff_limit_s", "main"]

_STATE = "router.state.json"
_ADDRESS = "router.json"
_LEADER = "router.leader"
_BACKLOG = 4096
_GRACE_S = 20.0
"""Slurm sends SIGKILL 30 s after SIGTERM (KillWait, slurm.conf(5)); the agent needs some of that."""


def handoff_limit_s(service: Service) -> float | None:
    """Longest wait for a decode leg's first token after the prefill's answer: half the lease, or less if so set.

    None only where the lease rule is off and no time-out is set: a test that shows what the rule prevents.
    """
    settings = service.router
    if not settings.lease_rule:
        return settings.handoff_timeout_s
    half_s = service.kv_lease_s / 2
    return half_s if settings.handoff_timeout_s is None else min(settings.handoff_timeout_s, half_s)


def main(argv: Sequence[str]) -> int:
    """Run until SIGTERM; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hpcserve.router", description="The router of one job.")
    parser.add_argument("--job", required=True, type=Path, help="the job directory")
    parser.add_argument("--node", required=True, help="name of the node that this runs on")
    parser.add_argument("--host", required=True, help="address to listen on")
    parser.add_argument("--port", required=True, type=int, help="port to listen on")
    parser.add_argument("--socket", type=int, help="number of an inherited socket that listens there already")
    parser.add_argument("--grace-s", type=float, default=_GRACE_S, help="longest wait for requests at the end")
    words = parser.parse_args(argv)
    try:
        listener = _listen(words.host, words.port) if words.socket is None else _inherited(words.socket)
        _spare_the_collector()
        return uvloop.run(
            _serve(
                words.job, node=words.node, host=words.host, port=words.port, listener=listener, grace_s=words.grace_s
            )
        )
    except HpcserveError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except (OSError, UnreadableRecordError) as error:
        sys.stderr.write(f"router: {error}\n")
        return ServiceError.exit_code


async def _serve(job: Path, *, node: str, host: str, port: int, listener: socket.socket, grace_s: float) -> int:
    loop = asyncio.get_running_loop()
    pid = os.getpid()
    plan = decode_record(Plan, (job / "plan.json").read_bytes())
    service_path = job / "service.yaml"
    service = load_service(service_path.read_text(encoding="utf-8"), source=str(service_path), site=None)
    claim_leadership(
        job / _LEADER,
        Leader(node=node, pid=pid, start_ticks=start_ticks(pid) or 0, job=os.environ.get("SLURM_JOB_ID", "local")),
    )
    pools = Pools(loop=loop)
    engine_key = (job / "keys" / "engine.key").read_text(encoding="ascii").strip()
    key_file = KeyFile(job, secret=engine_key.encode())
    limits = Limits(handoff_s=handoff_limit_s(service))
    counters = CounterReader(pools, adapter_for(service.engine).read_counters)
    arrivals = Arrivals(counters, apart_s=min(1.0, (limits.handoff_s or 1.0) / 6))
    roster = Roster(plan, model=service.served_name, workload=service.workload)
    desk = Desk(
        roster=roster,
        pools=pools,
        metrics=Metrics(),
        log=Log(),
        limits=limits,
        now_s=time.monotonic,  # the loop's own clock counts whole milliseconds
        keys=key_file.ring(),
        access=AccessLog(job / "logs" / "access.jsonl") if service.router.access_log else None,
        engine_key=engine_key.encode(),
        arrivals=arrivals,
        preferences=preferences_of(service),
        slots=LinkSlots(roster.link_times, now_s=loop.time, later=loop.call_later)
        if service.router.pulls_in_turn
        else None,
        id_prefix=f"hpc-{pid}-",
    )
    reports = Reports(roster, counters)
    desk.further_series.append(reports.series)
    kv = KvParts(
        model_directory=_tokenizer_of(service, job),
        without_cache=frozenset(worker.id for worker in plan.workers if not keeps_prefixes(service, worker)),
        pools=pools,
        counters=counters,
        key=engine_key,
        log=desk.log.event,
        now_s=loop.time,
    )
    desk.kv = kv.knowledge
    desk.further_series.append(kv.series)
    sessions: set[Session] = set()
    watch = Watch(job)
    watcher = Watcher(
        desk,
        look=watch.poll,
        prover=Prover(pools, counters, key=engine_key, handoff_s=limits.handoff_s),
        stalls=Stalls(desk, counters),
        sessions=sessions,
        state_path=job / _STATE,
        reports=reports,
        kv=kv,
        key_file=key_file,
    )
    watcher.see(watch.poll())
    with contextlib.suppress(UnreadableRecordError):  # an older router's: without it everything is proved anew
        earlier = read_dir_record(job, _STATE, RouterState)
        if earlier is not None:
            desk.roster.take_over(earlier.proofs)
    server = await loop.create_server(lambda: Session(desk, sessions), sock=listener)
    write_record(job / _ADDRESS, RouterAddress(url=f"http://{_in_url(host)}:{port}", node=node, pid=pid))
    desk.log.event(f"listening on {host} port {port}, pid {pid}")
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    watching = asyncio.create_task(watcher.run())
    stopped = asyncio.create_task(stopping.wait())
    await asyncio.wait((watching, stopped), return_when=asyncio.FIRST_COMPLETED)
    try:
        if watching.done():
            await watching  # raises what ended it
        await _drain(desk, sessions, server, grace_s=grace_s)
    finally:
        watching.cancel()
        await asyncio.gather(watching, stopped, return_exceptions=True)
        await arrivals.close()
        await kv.close()
        pools.close()
        if desk.access is not None:
            desk.access.close()
        desk.log.event("ended")
        desk.log.flush()
    return 0


def _tokenizer_of(service: Service, job: Path) -> Path | None:
    """The model's directory where its tokenizer is wanted, as the agent finds it; None where it is not."""
    if service.router.kv != "events":
        return None
    path = job / "site.yaml"
    site = load_site(path.read_text(encoding="utf-8"), source=str(path))
    return Path(site.paths.models).expanduser() / Path(service.model).expanduser()


def _spare_the_collector() -> None:
    """Requests make no cycles, so the collector has little to find: it looks seldom, and past what is there by now.

    With CPython's own thresholds it takes 8 % of the time of a request (perf, 64 at once).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, though connections of an earlier router linger there and the agent holds the port bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ServiceError(f"cannot listen on {host} port {port}: {error.strerror}") from None
    return listener


def _inherited(number: int) -> socket.socket:
    """The socket that whoever started this process opened."""
    try:
        listener = socket.socket(fileno=number)
    except OSError as error:
        raise ServiceError(f"no socket has the number {number}: {error.strerror}") from None
    listener.setblocking(False)
    return listener


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _drain(desk: Desk, sessions: set[Session], server: asyncio.Server, *, grace_s: float) -> None:
    """Take no more requests, and let those under way end."""
    desk.draining = True
    server.close()
    until_s = desk.now_s() + grace_s
    while desk.now_s() < until_s and any(session.busy for session in sessions):  # noqa: ASYNC110 - once, at the end
        await asyncio.sleep(0.05)
    for session in tuple(sessions):
        session.close()
    await asyncio.sleep(0)
