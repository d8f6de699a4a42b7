"""Connections to engines: kept warm, one request at a time on each, their bytes handed on as they come."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol, cast
from urllib.parse import urlsplit

import msgspec

from hpcserve.nouns import Endpoint
from hpcserve.router.answers import engine_lines
from hpcserve.router.chunked import ChunkedBody
from hpcserve.router.outbox import Outbox
from hpcserve.router.request import BadMessageError
from hpcserve.router.response import HEAD_LIMIT_BYTES, ResponseHead, parse_response_head, whole_response

__all__ = ["Leg", "Pool", "Pools", "Receiver"]

_KEEP_IDLE_S = 4.0
"""vLLM closes a connection that is idle for 5 s (VLLM_HTTP_TIMEOUT_KEEP_ALIVE); it must not do so under a request."""
_DIAL_S = 5.0
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 4))
"""A node that lost its power or its link resets no connection: the kernel gives it up after 20 + 4 x 10 s of silence
(tcp(7)), also when its endpoint has been withdrawn and nobody asks for its health any more."""
_UNACKNOWLEDGED_MS = 60_000
"""The same where bytes of ours are on their way: keepalive waits for them (tcp(7), TCP_USER_TIMEOUT)."""
_JOIN_BELOW_BYTES = 16 << 10
"""Below this, one copy costs less than a second buffer in the write."""


class Receiver(Protocol):
    """Who waits for a response.

    Either `leg_whole` and nothing else, or the parts, of which exactly one of `leg_ended` and `leg_failed` comes last,
    unless the leg is aborted.
    """

    def leg_whole(self, leg: "Leg", head: ResponseHead, body: bytes) -> None:
        """All of it came in one piece, with a length."""

    def leg_head(self, leg: "Leg", head: ResponseHead) -> None:
        """Status and headers."""

    def leg_data(self, leg: "Leg", raw: bytes, payload: bytes) -> None:
        """A piece of the body: as it came, and without chunk framing (empty when `leg.raw_only`)."""

    def leg_ended(self, leg: "Leg") -> None:
        """The response is whole."""

    def leg_failed(self, leg: "Leg", reason: str) -> None:
        """No connection, or it broke: no (further) bytes come."""


class Leg(msgspec.Struct, eq=False):
    """One request to one engine."""

    endpoint: Endpoint
    receiver: Receiver
    message: tuple[bytes, bytes]
    """Head and body."""
    sent_s: float
    raw_only: bool = False
    pass_on: Callable[[bytes], None] | None = None
    """Takes whole chunks as they came, once nothing more is to be read in them."""
    over: bool = False
    given_up: bool = False
    """Its worker stood still and was given up with all that it had."""
    connection: "_Connection | None" = None

    @property
    def at_boundary(self) -> bool:
        """Whether the bytes so far end with a whole chunk (always so for bodies that are not chunked)."""
        body = self.connection.chunks if self.connection is not None else None
        return body is None or body.at_boundary

    def abort(self) -> None:
        """Close the connection, so that the engine aborts the request; nothing more is received. Harmless when over."""
        self.over = True
        if self.connection is not None:
            self.connection.close()

    def pause(self, *, paused: bool) -> None:
        """Stop or go on reading, as the client takes the bytes."""
        if self.connection is not None and not self.over:
            self.connection.pause(paused=paused)

    # What follows is called by the pool and its connections.

    def start(self, connection: "_Connection") -> None:
        """Send on this connection, unless the leg was aborted while it was dialled."""
        if self.over:
            connection.release(reusable=True)
            return
        connection.send(self)

    def end(self) -> None:
        """The response is whole; the connection is no longer this leg's."""
        self.over = True
        self.connection = None
        self.receiver.leg_ended(self)

    def fail(self, reason: str) -> None:
        """No (further) bytes come."""
        if not self.over:
            self.over = True
            self.receiver.leg_failed(self, reason)


class _Connection(asyncio.Protocol):
    """One connection: idle in its pool, or busy with one leg."""

    __slots__ = (
        *("_buffer", "_clock", "_head", "_left", "_leg", "_outbox", "_pool", "_transport"),
        *("chunks", "closed", "idle_since_s"),
    )

    def __init__(self, pool: "Pool", clock: Callable[[], float]) -> None:
        self._pool = pool
        self._outbox = pool.outbox
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
        self._pool.greet(self)
        line: socket.socket = transport.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (*_KEEPALIVE, (socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)):
            line.setsockopt(socket.IPPROTO_TCP, option, value)

    def send(self, leg: Leg) -> None:
        self._leg = leg
        leg.connection = self
        transport = self._transport
        if transport is None or self.closed:
            leg.fail("connection lost")
            return
        head, body = leg.message
        self._outbox.put(transport, head + body if len(body) < _JOIN_BELOW_BYTES else leg.message)

    def data_received(self, data: bytes) -> None:
        leg = self._leg
        if leg is None:  # an engine that speaks unasked
            self.close()
            return
        chunks = self.chunks
        if chunks is not None and leg.pass_on is not None and chunks.is_next_chunk(data):
            leg.pass_on(data)
            return
        try:
            if self._head is None:
                if not self._buffer and (whole := whole_response(data)):
                    self._leg = leg.connection = None
                    leg.over = True
                    self.idle_since_s = self._clock()
                    self._pool.keep(self)
                    head, body = whole
                    leg.receiver.leg_whole(leg, head, body)
                    return
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
            if self._buffer:
                data = self._buffer + data
            end = data.find(b"\r\n\r\n")
            if end < 0 or end > HEAD_LIMIT_BYTES:
                if len(data) > HEAD_LIMIT_BYTES:
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
        leg.receiver.leg_head(leg, head)
        return data

    def _take_body(self, leg: Leg, data: bytes) -> None:
        head, chunks = self._head, self.chunks
        if head is None:
            return
        if chunks is not None:
            payload = b""
            if leg.raw_only:
                excess = chunks.feed(data)
            else:
                pieces: list[bytes] = []
                excess = chunks.feed(data, pieces)
                payload = b"".join(pieces)
            ended = chunks.ended
            raw = data[: len(data) - excess] if excess else data
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
            leg.receiver.leg_data(leg, raw, payload)
        if ended and self._leg is leg and not self.closed:
            self._leg = self._head = self.chunks = None
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
            self.pause(paused=False)  # the client that was slow is not the next one's
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
            leg.given_up = True
            leg.fail(reason)

    def pause(self, *, paused: bool) -> None:
        """Stop or go on reading."""
        transport = self._transport
        if transport is not None and not self.closed and transport.is_reading() == paused:
            (transport.pause_reading if paused else transport.resume_reading)()


class Pool:
    """Connections to one start of one engine."""

    def __init__(self, endpoint: Endpoint, *, loop: asyncio.AbstractEventLoop, outbox: Outbox) -> None:
        self.endpoint = endpoint
        address = urlsplit(endpoint.url)
        self._host, self._port = address.hostname or "", address.port or 80
        self._loop = loop
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._dials: set[asyncio.Task[None]] = set()
        self.retired = False
        """Whether it keeps no connection: its worker is withdrawn."""
        self.outbox = outbox
        self._lines: dict[tuple[bytes, bytes], bytes] = {}
        self.authority = address.netloc.encode()

    def lines(self, path: bytes, key: bytes) -> bytes:
        """The lines that all requests' heads of this path have."""
        found = self._lines.get((path, key))
        if found is None:
            found = self._lines[path, key] = engine_lines(path, authority=self.authority, key=key)
        return found

    def send(self, leg: Leg) -> None:
        """Send on the connection that was used last, or on a new one."""
        idle = self._idle
        if idle:
            before_s = self._loop.time() - _KEEP_IDLE_S
            if idle[-1].idle_since_s > before_s:
                idle.pop().send(leg)
                return
            self.close_idle(before_s=before_s)  # the engine may be about to close them: all are as old, or older
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
        leg.start(connection)

    def greet(self, connection: _Connection) -> None:
        """A connection is open."""
        self._open.add(connection)

    def keep(self, connection: _Connection) -> None:
        """Take back a connection that is free again."""
        if self.retired:
            connection.close()
        else:
            self._idle.append(connection)

    def forget(self, connection: _Connection) -> None:
        """A connection is closed."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    def close_idle(self, *, before_s: float) -> None:
        """Close connections that have been idle since before that time of the loop's clock."""
        for connection in [each for each in self._idle if each.idle_since_s <= before_s]:
            connection.close()

    def retire(self) -> None:
        """Keep no connection any more; what is under way goes on to its own end."""
        self.retired = True
        self.close_idle(before_s=float("inf"))

    @property
    def busy(self) -> bool:
        """Whether legs are under way."""
        return bool(self._dials) or len(self._open) > len(self._idle)

    def break_off(self, reason: str) -> None:
        """Close everything; legs that are under way fail for this reason."""
        for task in self._dials:
            task.cancel()
        self.close_idle(before_s=float("inf"))
        for connection in list(self._open):
            connection.break_off(reason)


class Pools:
    """One pool for each start of each engine."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.outbox = Outbox(loop.call_soon)
        """For everything that is written while requests are served, to engines and to clients."""
        self._pools: dict[tuple[str, str], Pool] = {}

    def of(self, endpoint: Endpoint) -> Pool:
        """The pool of this start of this engine."""
        key = (endpoint.id, endpoint.generation)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(endpoint, loop=self._loop, outbox=self.outbox)
        return pool

    def keep_only(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Drop idle connections to every other start; what is under way there goes on to its own end."""
        wanted = {(endpoint.id, endpoint.generation) for endpoint in endpoints}
        for key, pool in self._pools.items():
            if key in wanted:
                pool.retired = False  # it is back
            else:
                pool.retire()
        self._drop_empty()

    def retired(self) -> tuple[Endpoint, ...]:
        """Starts of engines that are withdrawn and still have legs of ours."""
        return tuple(pool.endpoint for pool in self._pools.values() if pool.retired and pool.busy)

    def _drop_empty(self) -> None:
        for key in [key for key, pool in self._pools.items() if pool.retired and not pool.busy]:
            del self._pools[key]

    def break_off(self, endpoint: Endpoint, reason: str) -> None:
        """Close everything to this start of this engine; legs that are under way fail for this reason."""
        pool = self._pools.get((endpoint.id, endpoint.generation))
        if pool is not None:
            pool.break_off(reason)

    def tidy(self) -> None:
        """Close what has been idle for too long; to be called about once a second."""
        before_s = self._loop.time() - _KEEP_IDLE_S
        for pool in tuple(self._pools.values()):
            pool.close_idle(before_s=before_s)
        self._drop_empty()

    def close(self) -> None:
        """Close everything; legs that are under way fail."""
        for pool in tuple(self._pools.values()):
            pool.retire()
            pool.break_off("the router is ending")
        self._pools.clear()
