"""A small HTTP/1.1 server: requests one after another on a connection, whole bodies in, whole or chunked answers out.

A handler whose client goes away is cancelled.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

__all__ = ["Handler", "Reply", "Request", "answer_json", "serve"]

_MAX_HEAD_BYTES = 64 * 2**10
_MAX_BODY_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class _BadRequestError(Exception):
    """Not HTTP, or more of it than is taken."""


class Reply:
    """Where a handler writes its answer: once `whole`, or `begin` and then any number of `event`s and `end`."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._chunked = False

    def whole(self, status: int, body: bytes, *, kind: str = "application/json", extra: str = "") -> None:
        """Send a complete answer."""
        head = f"HTTP/1.1 {status} {_phrase(status)}\r\nserver: hpcserve-simengine\r\n"
        head += f"content-length: {len(body)}\r\n"
        if body:
            head += f"content-type: {kind}\r\n"
        self._transport.write(f"{head}{extra}\r\n".encode() + body)

    def begin(self) -> None:
        """Start a stream of server-sent events."""
        self._chunked = True
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nserver: hpcserve-simengine\r\n"
            b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )

    def event(self, data: bytes) -> None:
        """Send one event."""
        self._transport.write(b"%x\r\ndata: %b\n\n\r\n" % (len(data) + 8, data))

    def end(self) -> None:
        """End a stream."""
        self._transport.write(b"0\r\n\r\n")


Handler = Callable[[Request, Reply], Awaitable[None]]


def answer_json(reply: Reply, status: int, content: Any, *, extra: str = "") -> None:
    """Send JSON, compact as Starlette writes it."""
    reply.whole(
        status, json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace"), extra=extra
    )


async def serve(handler: Handler, host: str, port: int) -> asyncio.Server:
    """Listen; raises OSError where the address is taken."""
    return await asyncio.get_running_loop().create_server(lambda: _Connection(handler), host, port, backlog=2048)


class _Connection(asyncio.Protocol):
    """One client: collects bytes, hands over one request at a time."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._continued = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why it is lost does not matter
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._task is None:
            self._next()

    def _next(self) -> None:
        """Handle the next request if it is complete."""
        transport = self._transport
        if transport is None:
            return
        try:
            request = self._take(transport)
        except _BadRequestError as error:
            answer_json(Reply(transport), HTTPStatus.BAD_REQUEST, {"detail": str(error)}, extra="connection: close\r\n")
            transport.close()
            return
        if request is not None:
            self._task = asyncio.ensure_future(self._handle(request, transport))

    async def _handle(self, request: Request, transport: asyncio.Transport) -> None:
        await self._handler(request, Reply(transport))
        self._task = None
        if request.headers.get("connection", "").lower() == "close":
            transport.close()
        else:
            self._next()

    def _take(self, transport: asyncio.Transport) -> Request | None:
        """The first request of the buffer; None while it is not complete."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                raise _BadRequestError("the head of the request is too long")
            return None
        method, path, headers = _read_head(bytes(self._buffer[:end]))
        body, used = self._read_body(headers, end + 4)
        if body is None:
            if headers.get("expect", "").lower() == "100-continue" and not self._continued:
                self._continued = True
                transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return None
        self._continued = False
        del self._buffer[:used]
        return Request(method=method, path=path, headers=headers, body=body)

    def _read_body(self, headers: Mapping[str, str], start: int) -> tuple[bytes | None, int]:
        """The body and where it ends in the buffer; None while it is not complete."""
        if "chunked" in headers.get("transfer-encoding", "").lower():
            return self._read_chunks(start)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > _MAX_BODY_BYTES:
            raise _BadRequestError(f"content-length {length}")
        stop = start + int(length)
        return (bytes(self._buffer[start:stop]), stop) if len(self._buffer) >= stop else (None, 0)

    def _read_chunks(self, start: int) -> tuple[bytes | None, int]:
        body = bytearray()
        while True:
            line_end = self._buffer.find(b"\r\n", start)
            if line_end < 0:
                return None, 0
            try:
                size = int(bytes(self._buffer[start:line_end]).partition(b";")[0], 16)
            except ValueError:
                raise _BadRequestError("a chunk without a size") from None
            start = line_end + 2
            if len(body) + size > _MAX_BODY_BYTES:
                raise _BadRequestError("the body is too long")
            if len(self._buffer) < start + size + 2:
                return None, 0
            body += self._buffer[start : start + size]
            start += size + 2
            if size == 0:
                return bytes(body), start


def _read_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, path without query, headers."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):  # noqa: PLR2004 - method, target, version
        raise _BadRequestError(f"not a request line: {lines[0][:80]!r}")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return words[0], words[1].partition("?")[0], headers


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase
