"""The router's process on its node: started, adopted, started again on the same address when it dies."""

import asyncio
import contextlib
import os
import sys

from hpcserve.agent.life import fresh_generation
from hpcserve.agent.processes import Program, adopt, ended_by_stop, start
from hpcserve.agent.restarts import MAX_DEATHS, Restarts
from hpcserve.agent.station import LOG, Station
from hpcserve.discovery import log_tail
from hpcserve.errors import ServiceError

__all__ = ["NAME", "keep_router"]

NAME = "router"


async def keep_router(station: Station, *, port: int, told: asyncio.Event, stopping: asyncio.Event) -> None:
    """Until `stopping` is set; raises ServiceError when starting it again is hopeless.

    `told`: the job is to end, but workers may still drain: the router serves on, and is not started again if it ends.
    """
    loop = asyncio.get_running_loop()
    restarts = Restarts()
    program = adopt(station.pid_path(NAME), node=station.node.name)
    stopped = asyncio.create_task(stopping.wait())
    try:
        while program is not None or not told.is_set():
            since_s, trouble = loop.time(), ""
            try:
                program = program or _start(station, port)
            except OSError as error:  # a full disk: the next try may succeed
                trouble = f"it could not be started: {error}"
            if program is not None:
                ended = asyncio.create_task(program.ended())
                await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
                if not ended.done():
                    ended.cancel()
                    await asyncio.gather(ended, return_exceptions=True)
                    break
                await program.end(terminate_s=0)
                program = None
                if await ended_by_stop(ended.result(), told):
                    break
                trouble = _trouble(station, ended.result())
            restarts = restarts.after_death(served_s=loop.time() - since_s)
            if restarts.exhausted:
                raise ServiceError(
                    f"the router failed {MAX_DEATHS} times in a row: {trouble}",
                    remedy=f"see {station.log_path(NAME)}",
                )
            LOG.warning("router: %s; starting it again in %.0f s", trouble, restarts.pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), timeout=restarts.pause_s)
    finally:
        stopped.cancel()
    if program is not None:
        await program.end(terminate_s=station.pace.terminate_s)
    station.pid_path(NAME).unlink(missing_ok=True)


def _trouble(station: Station, code: int | None) -> str:
    """How it ended, and its last word."""
    tail = log_tail(station.log_path(NAME), 1)
    return f"it ended with {code}: {tail[0] if tail else 'it said nothing'}"


def _start(station: Station, port: int) -> Program:
    """Raises OSError; nothing runs then."""
    station.ports.hold()
    program = start(
        (
            *(sys.executable, "-m", "hpcserve.router"),
            *("--job", str(station.job_directory)),
            *("--node", station.node.name),
            *("--host", station.node.control_address),
            *("--port", str(port)),
        ),
        node=station.node.name,
        generation=fresh_generation(station.life),
        record_path=station.pid_path(NAME),
        log_path=station.log_path(NAME),
        environment=os.environ,
        directory=station.job_directory,
    )
    LOG.info("router: started, pid %d, on %s port %d", program.pid, station.node.control_address, port)
    return program
