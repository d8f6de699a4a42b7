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
            if program is None:
                program = _start(station, port)
            since_s = loop.time()
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
            restarts = restarts.after_death(served_s=loop.time() - since_s)
            tail = log_tail(station.log_path(NAME))
            if restarts.exhausted:
                raise ServiceError(
                    f"the router ended {MAX_DEATHS} times in a row: {tail[-1] if tail else 'it said nothing'}",
                    remedy=f"see {station.log_path(NAME)}",
                )
            LOG.warning("router: it ended (%s); starting it again in %.0f s", ended.result(), restarts.pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(told.wait(), timeout=restarts.pause_s)
    finally:
        stopped.cancel()
    if program is not None:
        await program.end(terminate_s=station.pace.terminate_s)
    station.pid_path(NAME).unlink(missing_ok=True)


def _start(station: Station, port: int) -> Program:
    """Raises ServiceError where it cannot even be started."""
    station.ports.hold()
    try:
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
    except OSError as error:
        raise ServiceError(f"the router could not be started: {error}") from None
    LOG.info("router: started, pid %d, on %s port %d", program.pid, station.node.control_address, port)
    return program
