"""`Site` -> `Errand`: who sits where, which pairs, in which rounds."""

from collections.abc import Iterable, Sequence

from hpcserve.errors import NotFoundError, PlacementError
from hpcserve.fabric import Fabric, fabric_of
from hpcserve.measure.errand import START_S, Errand, Seat, Task
from hpcserve.measure.pairs import links_of, pairs_of, uplink_tasks
from hpcserve.measure.rounds import rounds_of
from hpcserve.nouns import Nic, NicKind, Site
from hpcserve.site import hosts_of

__all__ = ["plan_errand", "time_limit_s"]

_BLOCK_BYTES = 2**20
"""KV-like: a block of 16 tokens of a 70B model in 16 bits is 5 MiB over its layers, of an 8B one 2 MiB; as vLLM pulls
them, some layers at a time, pieces of 1 MiB and more carry nearly all bytes."""
_BLOCKS = 16
_BUFFER_BYTES_HOST = 64 * 2**20
_BUFFER_BYTES_GPU = 1024 * 2**20
_PAUSE_US_CPU = 100.0
_WITHIN_S = 60.0
_ROUND_S = 6.0
"""Connecting, warming up and the last read's end, on a slow link."""


def plan_errand(site: Site, *, nodes: Sequence[str], seconds: float) -> Errand:
    """What is measured between these nodes of a checked site, each flow for `seconds`.

    Raises NotFoundError for a node that the site does not have, PlacementError where there is nothing to measure.
    """
    hosts = hosts_of(site)
    for node in nodes:
        if node not in hosts:
            raise NotFoundError(f"no node `{node}` in site {site.name}", remedy="see `hpcserve site check`")
    seats = tuple(seat for node in nodes for seat in _seats(site, node))
    fabric = fabric_of(site)
    flows, scope = pairs_of(seats, fabric)
    if not flows:
        raise PlacementError(
            f"nothing to measure: {len(set(nodes))} node{'' if len(set(nodes)) == 1 else 's'} of site {site.name},"
            " and no two that a path joins",
            remedy="name two nodes or more with --nodes",
        )
    alone = rounds_of((Task(flows=(flow,)) for flow in flows), holds=lambda task: _holds(seats, task, fabric))
    together = rounds_of(uplink_tasks(seats, fabric), holds=lambda task: _holds(seats, task, fabric))
    is_cpu = all(not seat.in_gpu_memory for seat in seats)
    return Errand(
        site=site.name,
        scope=scope,
        backend="LIBFABRIC" if site.transport.backend == "libfabric" else "UCX",
        seats=seats,
        rounds=(*alone, *together),
        block_bytes=_BLOCK_BYTES,
        blocks=_BLOCKS,
        buffer_bytes=_BUFFER_BYTES_HOST if is_cpu else _BUFFER_BYTES_GPU,
        seconds=seconds,
        within_s=_WITHIN_S + 3 * seconds,
        pause_us=_PAUSE_US_CPU if is_cpu else 0.0,
    )


def time_limit_s(errand: Errand) -> int:
    """Seconds that one attempt is given: each flow its time, what connecting takes, and the start of all ranks."""
    return int(START_S + len(errand.rounds) * (3 * errand.seconds + _ROUND_S))


def _seats(site: Site, node: str) -> Iterable[Seat]:
    kind = hosts_of(site)[node]
    for place, nic in enumerate(nic for nic in kind.nics if nic.gpus):
        yield Seat(
            node=node,
            gpu=nic.gpus[0],
            nic=nic.name,
            place=place,
            in_gpu_memory=kind.gpu.model != "cpu",
            env=_settings(site, nic),
        )


def _settings(site: Site, nic: Nic) -> dict[str, str]:
    """The variables that a worker with this NIC gets, so that what is measured is what vLLM will use."""
    settings = {**site.transport.ucx, **site.transport.kinds.get(nic.kind, {}), **site.transport.libfabric}
    if site.transport.backend == "libfabric":
        return settings
    if nic.kind == NicKind.EFA:
        raise PlacementError(
            f"UCX does not drive EFA ({nic.name})", remedy="set `transport.backend: libfabric` in the site file"
        )
    return {**settings, "UCX_NET_DEVICES": nic.name}


def _holds(seats: Sequence[Seat], task: Task, fabric: Fabric) -> set[str]:
    """The links and the seats of a task: a seat that reads is not read from meanwhile, as memory is shared too."""
    things = {f"seat {number}" for flow in task.flows for number in (flow.source, flow.reader)}
    for flow in task.flows:
        things.update(links_of(seats, flow, fabric))
    return things
