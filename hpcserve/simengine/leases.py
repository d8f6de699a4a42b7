"""Leases: how long a prefill engine keeps the KV of an answered request for someone to pull."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpcserve.simengine.meters import Meters
from hpcserve.simengine.pool import Block, BlockPool

__all__ = ["Leases"]


@dataclass(slots=True)
class _Lease:
    blocks: Sequence[Block]
    timer: asyncio.TimerHandle


class Leases:
    """Blocks kept for others: given back at the reader's word or at the end of the lease, whichever is first."""

    def __init__(self, pool: BlockPool, meters: Meters, *, lease_s: float, released: Callable[[], None]) -> None:
        self._pool = pool
        self._meters = meters
        self._lease_s = lease_s
        self._released = released
        self._leases: dict[str, _Lease] = {}

    def keep(self, request_id: str, blocks: Sequence[Block]) -> None:
        """Keep a finished request's blocks for the length of a lease."""
        self._leases[request_id] = _Lease(blocks=blocks, timer=self._timer(request_id, self._lease_s))

    def beat(self, request_id: str) -> None:
        """Prolong a lease to two thirds of its length from now (nixl/base_worker.py); nothing where it is over."""
        lease = self._leases.get(request_id)
        if lease is not None:
            lease.timer.cancel()
            lease.timer = self._timer(request_id, self._lease_s * 2 / 3)

    def done(self, request_id: str) -> None:
        """The reader is through: give the blocks back; counted where the lease was over before."""
        lease = self._leases.pop(request_id, None)
        if lease is None:
            self._meters.late_notices.inc()
            return
        lease.timer.cancel()
        self._pool.release(lease.blocks)
        self._released()

    def _timer(self, request_id: str, delay_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, self._expire, request_id)

    def _expire(self, request_id: str) -> None:
        lease = self._leases.pop(request_id)
        self._meters.kv_expired.inc()
        self._pool.release(lease.blocks)
        self._released()
