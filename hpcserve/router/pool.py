"""Connections to engines: kept warm, one request at a time on each, their bytes handed on as they come."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, cast
from urllib.parse import urlsplit

from hpcserve.nouns import Endpoint
from hpcserve.router.http1 import BadMessageError, ChunkedBody, ResponseHead, parse_response_head

__all__ = ["Leg", "Pool", "Pools", "Receiver"]

_KEEP_IDLE_S = 4.0
"""vLLM closes a connection that is idle for 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE); it must not do so under a request."""
_DIAL_S = 5.0
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 4))
"""A node that lost its power or its link resets no connection: the kernel gives it up after 20 + 4 x 10 s of silence
(tcp(7)), also when its endpoint has been withdrawn and nobody asks for its health any more."""
_UNACKNOWLEDGED_MS = 60_000
"""The same where bytes of ours are on their way: keepalive waits for them (tcp(7), TCP_USER_TIMEOUT)."""
_HEAD_LIMIT_BYTES = 64 << 10
_JOIN_BELOW_BYTES = 16 << 10
"""Below this, one copy costs less than a second buffer in the write."""


class Receiver(Protocol):
    """Who waits for a response. Exactly one of `leg_ended` and `leg_failed` comes last, unless the leg is aborted."""

    def leg_head(self, leg: "Leg", head: ResponseHead) -> None:
        """Status and headers."""

    def leg_data(self, leg: "Leg", raw: bytes, payload: bytes) -> None:
        """A piece of the body: as it came, and without chunk framing (empty when `leg.raw_only`)."""

    def leg_ended(self, leg: "Leg") -> None:
        """The response is whole."""

    def leg_failed(self, leg: "Leg", reason: str) -> None:
        """No connection, or it broke: no (further) bytes come."""


class Leg:
    """One request to one engine."""

    __slots__ = ("_connection", "_dialled", "_message", "_receiver", "endpoint", "over", "raw_only", "sent_s")

    def __init__(self, endpoint: Endpoint, receiver: Receiver, message: tuple[bytes, bytes], now_s: float) -> None:
        self.endpoint = endpoint
        self.sent_s = now_s
        self.raw_only = False
        self.over = False
        self._message = message
        self._receiver = receiver
        self._connection: _Connection | None = None
        self._dialled = False

    @property
    def at_boundary(self) -> bool:
        """Whether the bytes so far end with a whole chunk (always so for bodies that are not chunked)."""
        body = self._connection.chunks if self._connection is not None else None
        return body is None or body.at_boundary

    def abort(self) -> None:
        """Close the connection, so that the engine aborts the request; nothing more is received. Harmless when over."""
        self.over = True
        if self._connection is not None:
            self._connection.close()

    def pause(self, *, paused: bool) -> None:
        """Stop or go on reading, as the client takes the bytes."""
        if self._connection is not None and not self.over:
            self._connection.pause(paused=paused)

    # What follows is called by the pool and its connections.

    def start(self, connection: "_Connection") -> None:
        """Send on this connection, unless the leg was aborted while it was dialled."""
        if self.over:
            connection.release(reusable=True)
            return
        self._connection = connection
        connection.send(self, self._message)

    def head(self, head: ResponseHead) -> None:
        """Pass on."""
        self._receiver.leg_head(self, head)

    def data(self, raw: bytes, payload: bytes) -> None:
        """Pass on."""
        self._receiver.leg_data(self, raw, payload)

    def end(self) -> None:
        """The response is whole; the connection is no longer this leg's."""
        self.over = True
        self._connection = None
        self._receiver.leg_ended(self)

    def fail(self, reason: str) -> None:
        """No (further) bytes come."""
        if not self.over:
            self.over = True
            self._receiver.leg_failed(self, reason)


class _Connection(asyncio.Protocol):
    """One connection: idle in its pool, or busy with one leg."""

    def __init__(self, pool: "Pool", clock: Callable[[], float]) -> None:
        self._pool = pool
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._leg: Leg | None = None
        self._head: ResponseHead | None = None
        self._buffer = b""
        self._left = 0
        self.chunks: ChunkedBody | None = None
        self.idle_since_s = 0.0
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        line: socket.socket = transport.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (*_KEEPALIVE, (socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)):
            line.setsockopt(socket.IPPROTO_TCP, option, value)

    def send(self, leg: Leg, message: tuple[bytes, bytes]) -> None:
        self._leg = leg
        self._head, self._buffer, self.chunks = None, b"", None
        transport = self._transport
        if transport is None or self.closed:
            leg.fail("connection lost")
            return
        head, body = message
        if len(body) < _JOIN_BELOW_BYTES:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    def data_received(self, data: bytes) -> None:
        leg = self._leg
        if leg is None:  # an engine that speaks unasked
            self.close()
            return
        try:
            if self._head is None:
                rest = self._take_head(leg, data)
                if rest is None or self._leg is not leg:
                    return
                data = rest
            self._take_body(leg, data)
        except BadMessageError as error:
            self.close()
            leg.fail(f"bad response: {error.message}")

    def _take_head(self, leg: Leg, data: bytes) -> bytes | None:
        """The bytes behind the head; None while it is incomplete."""
        while True:
            data = self._buffer + data
            end = data.find(b"\r\n\r\n")
            if end < 0 or end > _HEAD_LIMIT_BYTES:
                if len(data) > _HEAD_LIMIT_BYTES:
                    raise BadMessageError("head too large")
                self._buffer = data
                return None
            self._buffer = b""
            head = parse_response_head(data[:end])
            data = data[end + 4 :]
            if head.status >= 200:  # noqa: PLR2004 - 1xx are interim
                break
        self._head = head
        self._left = head.length or 0
        self.chunks = ChunkedBody() if head.chunked else None
        leg.head(head)
        return data

    def _take_body(self, leg: Leg, data: bytes) -> None:
        head, chunks = self._head, self.chunks
        if head is None:
            return
        if chunks is not None:
            pieces: list[bytes] | None = None if leg.raw_only else []
            excess = chunks.feed(data, pieces)
            ended = chunks.ended
            raw = data[: len(data) - excess] if excess else data
            payload = b"".join(pieces) if pieces else b""
        elif head.length is not None:
            raw = data if len(data) <= self._left else data[: self._left]
            excess = len(data) - len(raw)
            self._left -= len(raw)
            ended = self._left == 0
            payload = raw
        else:
            raw = payload = data
            excess, ended = 0, False
        if raw:
            leg.data(raw, payload)
        if ended and self._leg is leg and not self.closed:
            self._leg = None
            self.release(reusable=head.keep_alive and not excess)
            leg.end()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._pool.forget(self)
        leg, self._leg = self._leg, None
        if leg is None:
            return
        head = self._head
        if exc is None and head is not None and head.length is None and not head.chunked:
            leg.end()  # a body that ends with the connection
            return
        leg.fail("connection lost" if exc is None else f"connection lost: {exc}")

    def release(self, *, reusable: bool) -> None:
        if reusable and not self.closed:
            self.idle_since_s = self._clock()
            self._pool.keep(self)
        else:
            self.close()

    def close(self) -> None:
        self.closed = True
        self._leg = None
        self._pool.forget(self)
        if self._transport is not None:
            self._transport.abort()

    def break_off(self, reason: str) -> None:
        """Close, and tell the leg."""
        leg = self._leg
        self.close()
        if leg is not None:
            leg.fail(reason)

    def pause(self, *, paused: bool) -> None:
        """Stop or go on reading."""
        transport = self._transport
        if transport is not None and not self.closed and transport.is_reading() == paused:
            (transport.pause_reading if paused else transport.resume_reading)()


class Pool:
    """Connections to one start of one engine."""

    def __init__(self, endpoint: Endpoint, *, loop: asyncio.AbstractEventLoop) -> None:
        address = urlsplit(endpoint.url)
        self._host, self._port = address.hostname or "", address.port or 80
        self._loop = loop
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()
        self._dials: set[asyncio.Task[None]] = set()
        self._retired = False
        self.authority = address.netloc.encode()

    def send(self, leg: Leg) -> None:
        """Send on the connection that was used last, or on a new one."""
        if self._idle:
            connection = self._idle.pop()
            self._busy.add(connection)
            leg.start(connection)
            return
        task = self._loop.create_task(self._dial(leg))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    async def _dial(self, leg: Leg) -> None:
        try:
            async with asyncio.timeout(_DIAL_S):
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self, self._loop.time), self._host, self._port
                )
        except TimeoutError:
            leg.fail(f"no connection within {_DIAL_S:g} s")
            return
        except OSError as error:
            leg.fail(f"no connection: {error.strerror or error}")
            return
        except asyncio.CancelledError:
            leg.fail("connection given up")
            raise
        self._busy.add(connection)
        leg.start(connection)

    def keep(self, connection: _Connection) -> None:
        """Take back a connection that is free again."""
        self._busy.discard(connection)
        if self._retired:
            connection.close()
        else:
            self._idle.append(connection)

    def forget(self, connection: _Connection) -> None:
        """A connection is closed."""
        self._busy.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close_idle(self, *, before_s: float) -> None:
        """Close connections that have been idle since before that time of the loop's clock."""
        for connection in [each for each in self._idle if each.idle_since_s <= before_s]:
            connection.close()

    def retire(self) -> None:
        """Keep no connection any more; what is under way goes on to its own end."""
        self._retired = True
        self.close_idle(before_s=float("inf"))

    def break_off(self, reason: str) -> None:
        """Close everything; legs that are under way fail for this reason."""
        for task in self._dials:
            task.cancel()
        self.close_idle(before_s=float("inf"))
        for connection in list(self._busy):
            connection.break_off(reason)


class Pools:
    """One pool for each start of each engine."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pools: dict[tuple[str, str], Pool] = {}

    def of(self, endpoint: Endpoint) -> Pool:
        """The pool of this start of this engine."""
        key = (endpoint.id, endpoint.generation)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(endpoint, loop=self._loop)
        return pool

    def keep_only(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Drop idle connections to every other start; what is under way there goes on to its own end."""
        wanted = {(endpoint.id, endpoint.generation) for endpoint in endpoints}
        for key in self._pools.keys() - wanted:
            self._pools.pop(key).retire()

    def break_off(self, endpoint: Endpoint, reason: str) -> None:
        """Close everything to this start of this engine; legs that are under way fail for this reason."""
        pool = self._pools.get((endpoint.id, endpoint.generation))
        if pool is not None:
            pool.break_off(reason)

    def tidy(self) -> None:
        """Close what has been idle for too long; to be called about once a second."""
        before_s = self._loop.time() - _KEEP_IDLE_S
        for pool in self._pools.values():
            pool.close_idle(before_s=before_s)

    def close(self) -> None:
        """Close everything; legs that are under way fail."""
        for pool in self._pools.values():
            pool.retire()
            pool.break_off("the router is ending")
        self._pools.clear()
