"""One small request to an engine, for a coroutine: probes and proofs use it, requests of clients never do."""

import asyncio

from hpcserve.nouns import Endpoint
from hpcserve.router.pool import Leg, Pools
from hpcserve.router.response import ResponseHead

__all__ = ["AskError", "ask"]

_LONGEST_BYTES = 16 << 20


class AskError(Exception):
    """No answer: says why in a few words. `timed_out`: there was a connection or the wait for one, and nothing came."""

    def __init__(self, reason: str, *, timed_out: bool = False) -> None:
        super().__init__(reason)
        self.timed_out = timed_out


class _Waiting:
    """Collects one response."""

    def __init__(self, future: asyncio.Future[tuple[int, bytes]]) -> None:
        self._future = future
        self._status = 0
        self._pieces: list[bytes] = []
        self._size = 0

    def leg_head(self, leg: Leg, head: ResponseHead) -> None:  # noqa: ARG002 - Receiver
        self._status = head.status

    def leg_whole(self, leg: Leg, head: ResponseHead, body: bytes) -> None:
        self._status = head.status
        self.leg_data(leg, body, body)
        self.leg_ended(leg)

    def leg_data(self, leg: Leg, raw: bytes, payload: bytes) -> None:  # noqa: ARG002 - Receiver
        self._pieces.append(payload)
        self._size += len(payload)
        if self._size > _LONGEST_BYTES:
            leg.abort()
            self.leg_failed(leg, "the answer is too large")

    def leg_ended(self, leg: Leg) -> None:  # noqa: ARG002 - Receiver
        if not self._future.done():
            self._future.set_result((self._status, b"".join(self._pieces)))

    def leg_failed(self, leg: Leg, reason: str) -> None:  # noqa: ARG002 - Receiver
        if not self._future.done():
            self._future.set_exception(AskError(reason))


async def ask(
    pools: Pools,
    endpoint: Endpoint,
    path: str,
    *,
    body: bytes | None = None,
    key: str = "",
    timeout_s: float,
    request_id: str = "",
) -> tuple[int, bytes]:
    """Status and body: a POST where there is a body, else a GET. Raises AskError."""
    loop = asyncio.get_running_loop()
    pool = pools.of(endpoint)
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1".encode(), b"host: " + pool.authority]
    if key:
        lines.append(f"authorization: Bearer {key}".encode())
    if request_id:
        lines.append(f"x-request-id: {request_id}".encode())
    if body is not None:
        lines.append(b"content-type: application/json\r\ncontent-length: %d" % len(body))
    future: asyncio.Future[tuple[int, bytes]] = loop.create_future()
    leg = Leg(endpoint, _Waiting(future), (b"\r\n".join(lines) + b"\r\n\r\n", body or b""), loop.time())
    pool.send(leg)
    try:
        async with asyncio.timeout(timeout_s):
            return await future
    except TimeoutError:
        raise AskError(f"no answer within {timeout_s:g} s", timed_out=True) from None
    finally:
        if not leg.over:
            leg.abort()
