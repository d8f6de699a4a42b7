"""The reading side of a handoff: bring a prompt's KV from the engine that computed it."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hpcserve.simengine.link import SharedLink
from hpcserve.simengine.meters import Meters
from hpcserve.simengine.pool import Block
from hpcserve.simengine.settings import Settings, Transfer
from hpcserve.simengine.sidechannel import HANDSHAKE_TIMEOUT_S, Connection, PullError, open_peer

__all__ = ["BadHandoffError", "Pull", "Puller", "read_handoff"]

_NEEDED = ("remote_engine_id", "remote_request_id", "remote_host", "remote_port")


class BadHandoffError(Exception):
    """kv_transfer_params that vLLM's engine does not survive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pull:
    """What a decode request's kv_transfer_params ask for."""

    engine_id: str
    request_id: str
    host: str
    port: int
    blocks: tuple[int, ...]
    tensor_parallel: int


def read_handoff(params: dict[str, Any]) -> Pull | None:
    """The pull that these parameters ask for, None where they ask for none.

    Raises BadHandoffError where vLLM 0.32 stops on an assertion or a missing key (nixl/pull_scheduler.py, metadata.py).
    """
    if not params.get("do_remote_prefill"):
        return None
    groups = params.get("remote_block_ids")
    missing = [name for name in _NEEDED if params.get(name) is None]
    if missing:
        raise BadHandoffError(f"no {missing[0]}")
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], list) or not groups[0]:
        raise BadHandoffError(f"remote_block_ids {groups!r}")
    if any(type(number) is not int for number in groups[0]):
        raise BadHandoffError(f"remote_block_ids {groups!r}")
    return Pull(
        engine_id=str(params["remote_engine_id"]),
        request_id=str(params["remote_request_id"]),
        host=str(params["remote_host"]),
        port=int(params["remote_port"]),
        blocks=tuple(groups[0]),
        tensor_parallel=int(params.get("tp_size") or 1),
    )


class Puller:
    """Pulls KV; knows engines it has met by their id and does not look at the address again, as vLLM does."""

    def __init__(self, settings: Settings, transfer: Transfer, meters: Meters) -> None:
        self._settings = settings
        self._transfer = transfer
        self._meters = meters
        self._met: dict[str, tuple[str, int, int]] = {}
        """Address and block size by engine id."""
        self._links: dict[str, SharedLink] = {}

    async def bring(self, pull: Pull, blocks: Sequence[Block]) -> None:
        """Fill `blocks`, the last ones of the prompt, from the last ones of the pull.

        Raises PullError where the engine is gone, is another one, has no such blocks, or does not fit this one, and
        BadHandoffError where it gave fewer blocks than are to be filled.
        """
        try:
            connection = await self._connect(pull)
        except PullError:
            self._meters.xfer_failed.inc()
            raise
        beats = asyncio.ensure_future(self._beat(connection, pull))
        try:
            await self._read(connection, pull, blocks)
            await connection.done(pull.request_id)
        except PullError:
            self._meters.xfer_failed.inc()
            raise
        finally:
            beats.cancel()
            connection.close()

    async def _connect(self, pull: Pull) -> Connection:
        met = self._met.get(pull.engine_id)
        if met is not None:
            connection = await open_peer(met[0], met[1])
            try:  # NIXL cannot read a process that is gone, whoever has its address
                peer = await connection.hello()
                self._check(pull, peer.engine_id, peer.tensor_parallel, peer.block_size)
            except PullError:
                connection.close()
                raise
            return connection
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        try:
            connection = await asyncio.wait_for(open_peer(pull.host, pull.port), HANDSHAKE_TIMEOUT_S)
        except (PullError, TimeoutError) as error:
            await asyncio.sleep(HANDSHAKE_TIMEOUT_S - (loop.time() - start_s))
            raise PullError(f"no handshake with {pull.host}:{pull.port}: {error}") from None
        try:
            peer = await asyncio.wait_for(connection.hello(), HANDSHAKE_TIMEOUT_S)
            self._check(pull, peer.engine_id, peer.tensor_parallel, peer.block_size)
        except (PullError, TimeoutError) as error:
            connection.close()
            raise PullError(f"no handshake with {pull.host}:{pull.port}: {error}") from None
        self._met[pull.engine_id] = (pull.host, pull.port, peer.block_size)
        return connection

    def _check(self, pull: Pull, engine_id: str, tensor_parallel: int, block_size: int) -> None:
        if engine_id != pull.engine_id:
            raise PullError(f"it is {engine_id}, not {pull.engine_id}")
        if tensor_parallel != pull.tensor_parallel:
            raise PullError(f"it has {tensor_parallel} ranks, not {pull.tensor_parallel}")
        if block_size > self._settings.block_size:
            raise PullError(f"its blocks of {block_size} tokens are larger than {self._settings.block_size}")

    async def _read(self, connection: Connection, pull: Pull, blocks: Sequence[Block]) -> None:
        if not blocks:
            return
        if len(pull.blocks) < len(blocks):
            raise BadHandoffError(f"{len(pull.blocks)} remote blocks for {len(blocks)} local ones")
        start_s = time.monotonic()  # uvloop's clock stands still within a millisecond
        size_bytes = len(blocks) * self._settings.block_size * self._settings.kv_bytes_per_token
        numbers = pull.blocks[-len(blocks) :]
        link = self._link(pull)
        # Read at the end of the time: what a slow transfer finds there is what real memory would hold by then.
        await connection.read(numbers[:1])
        if link is not None:
            await link.carry(size_bytes)
        contents = await connection.read(numbers)
        for block, digests in zip(blocks, contents, strict=True):
            block.digests = digests
        self._meters.xfer_seconds.observe(time.monotonic() - start_s)
        self._meters.post_seconds.observe(0)
        self._meters.xfer_bytes.observe(size_bytes)
        self._meters.descriptors.observe(len(blocks))

    def _link(self, pull: Pull) -> SharedLink | None:
        """The link to a peer; None where no rate is set, then a pull takes what its round trips take."""
        rates = self._settings.gb_per_s
        key = f"{pull.host}:{pull.port}"
        rate = rates.get(key, rates.get(pull.host, rates.get("*")))
        if rate is None:
            return None
        return self._links.setdefault(key, SharedLink(rate))

    async def _beat(self, connection: Connection, pull: Pull) -> None:
        """Prolong the lease while the pull waits."""
        with suppress(PullError):
            while True:
                await asyncio.sleep(max(1.0, self._transfer.lease_s // 6))
                await connection.beat(pull.request_id)
