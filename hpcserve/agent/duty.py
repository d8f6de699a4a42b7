"""What an agent does from its first worker's start to its last one's end."""

import asyncio

from hpcserve.agent.router import keep_router
from hpcserve.agent.station import LOG, Station
from hpcserve.agent.worker import Worker
from hpcserve.discovery import Heart
from hpcserve.errors import HpcserveError, ServiceError
from hpcserve.nouns import Plan

__all__ = ["keep_alive"]


async def keep_alive(station: Station, plan: Plan, stopping: asyncio.Event) -> None:
    """Keep this node's share of the plan alive until `stopping`, then drain it: workers first, the router after them.

    Raises ServiceError, after draining, where the router cannot be kept alive. Any other error ends the agent
    alone: its workers run on, and the agent that is started in its place adopts them.
    """
    node = station.node.name
    mine = [Worker(station, planned) for planned in plan.workers if planned.node == node]
    if plan.router.port is None:
        raise ServiceError("plan.json gives the router no port", remedy="submit the service again")
    LOG.info("%s: workers: %s", node, ", ".join(worker.id for worker in mine) or "none")
    workers_stop, router_stop = asyncio.Event(), asyncio.Event()
    workers = [asyncio.create_task(worker.run(workers_stop)) for worker in mine]
    routers = []
    if plan.router.node == node:
        router = keep_router(station, port=plan.router.port, told=stopping, stopping=router_stop)
        routers = [asyncio.create_task(router)]
    stop = asyncio.create_task(stopping.wait())
    beating = asyncio.create_task(_beat(Heart(station.job_directory, node=node, generation=station.node.generation)))
    everything = (stop, beating, *workers, *routers)
    try:
        done, _ = await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
        failure = next((task.exception() for task in done if task is not stop), None)
        if failure is not None and not isinstance(failure, HpcserveError):
            raise failure
        LOG.info("%s: draining", node)
        workers_stop.set()
        await asyncio.gather(*workers)
        router_stop.set()
        await asyncio.gather(*routers)
    finally:
        for task in everything:
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)
        station.ports.close()


async def _beat(heart: Heart) -> None:
    """One heartbeat every period; a file system that refuses is told of once per change."""
    refused = False
    while True:
        try:
            await asyncio.to_thread(heart.beat)
        except OSError as error:
            if not refused:
                LOG.warning("the heartbeat could not be written: %s", error)
            refused = True
        else:
            refused = False
        await asyncio.sleep(heart.period_s)
