"""The router's process on its node: started, adopted, started again on the same address when it dies.

The agent opens the socket that the router listens on, and keeps it open: while a router is started again, clients wait
in the kernel's queue and are not refused.
"""

import asyncio
import contextlib
import os
import socket
import sys

from hpcserve.agent.life import fresh_generation
from hpcserve.agent.ports import listen
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
    door: socket.socket | None = None  # the router that an earlier agent started listens on a socket of that agent
    program = adopt(station.pid_path(NAME), node=station.node.name)
    stopped = asyncio.create_task(stopping.wait())
    try:
        while program is not None or not told.is_set():
            since_s, trouble = loop.time(), ""
            try:
                if program is None:
                    door = door or _open(station, port)
                    program = _start(station, port, door)
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
                with contextlib.suppress(OSError):  # tried again before the next start
                    door = door or _open(station, port)
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
        if door is not None:
            door.close()
    if program is not None:
        await program.end(terminate_s=station.pace.terminate_s)
    station.pid_path(NAME).unlink(missing_ok=True)


def _trouble(station: Station, code: int | None) -> str:
    """How it ended, and its last word."""
    tail = log_tail(station.log_path(NAME), 1)
    return f"it ended with {code}: {tail[0] if tail else 'it said nothing'}"


def _open(station: Station, port: int) -> socket.socket:
    """Raises OSError."""
    station.ports.hold()
    return listen(station.node.control_address, port)


def _start(station: Station, port: int, door: socket.socket) -> Program:
    """Raises OSError; nothing runs then."""
    program = start(
        (
            *(sys.executable, "-m", "hpcserve.router"),
            *("--job", str(station.job_directory)),
            *("--node", station.node.name),
            *("--host", station.node.control_address),
            *("--port", str(port)),
            *("--socket", str(door.fileno())),
        ),
        node=station.node.name,
        generation=fresh_generation(station.life),
        record_path=station.pid_path(NAME),
        log_path=station.log_path(NAME),
        environment=os.environ,
        directory=station.job_directory,
        sockets=(door,),
    )
    LOG.info("router: started, pid %d, on %s port %d", program.pid, station.node.control_address, port)
    return program
