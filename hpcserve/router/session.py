"""One client's connection: requests in their order, each answered before the next is looked at."""

import asyncio
import hashlib
import hmac
import re
from collections import deque
from dataclasses import dataclass
from typing import Literal, cast

from hpcserve.engines.handoff import BodyError, read_body, read_facts
from hpcserve.router.answers import error_answer
from hpcserve.router.desk import Desk
from hpcserve.router.documents import OPEN_PATHS, document
from hpcserve.router.exchange import Exchange
from hpcserve.router.http1 import Request, RequestReader
from hpcserve.routing import Refusal

__all__ = ["Session"]

_KINDS: dict[bytes, Literal["chat", "completions"]] = {
    b"/v1/chat/completions": "chat",
    b"/v1/completions": "completions",
}
_READ = frozenset({*OPEN_PATHS, b"/v1/models"})
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


@dataclass(slots=True, kw_only=True)
class _Asked:
    """A request in the queue. `refusal`: what it is answered with; `at_once`: without waiting for its body."""

    request: Request
    refusal: Refusal | None = None
    at_once: bool = False
    continued: bool = False


class Session(asyncio.Protocol):
    """Reads requests, refuses what must be refused, starts an `Exchange` for the rest."""

    def __init__(self, desk: Desk, sessions: set["Session"]) -> None:
        self._desk = desk
        self._sessions = sessions
        self._reader = RequestReader(
            header_limit_bytes=desk.limits.header_bytes, body_limit_bytes=desk.limits.body_bytes
        )
        self._transport: asyncio.Transport | None = None
        self._queue: deque[_Asked] = deque()
        self._newest: Request | None = None
        self._exchange: Exchange | None = None
        self._ending = False
        self._broken = False
        self._lingers_until_s = float("inf")
        self._advancing = False
        self._last_bytes_s = desk.now_s()
        self._began_s: float | None = None

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._sessions.add(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - Protocol
        """The client left, or we closed."""
        self._ending = True
        self._sessions.discard(self)
        self._transport = None
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_gone()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._ending or self._broken:
            return
        self._last_bytes_s = self._desk.now_s()
        for request in self._reader.feed(data):
            if request is not self._newest:
                self._newest = request
                self._queue.append(self._look_at_head(request))
        error = self._reader.error
        self._broken = self._reader.ended or error is not None
        if error is not None:
            if self._queue and not self._queue[-1].request.complete:
                self._queue.pop()
            refusal = Refusal(status=error.status, code="bad_request", message=error.message)
            self._queue.append(_Asked(request=Request(keep_alive=False), refusal=refusal, at_once=True))
        if self._reader.in_message:
            self._began_s = self._began_s or self._last_bytes_s
        else:
            self._began_s = None
        self._advance()

    def pause_writing(self) -> None:
        """The client takes bytes slower than they come."""
        if self._exchange is not None:
            self._exchange.pause(paused=True)

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._exchange is not None:
            self._exchange.pause(paused=False)

    # Called by the exchange.

    def write(self, data: bytes) -> None:
        """Send bytes of a response."""
        if self._transport is not None:
            self._transport.write(data)

    def finish(self, *, keep_alive: bool) -> None:
        """The response is at its end."""
        self._exchange = None
        if not keep_alive or self._desk.draining:
            self._end()
        else:
            self._last_bytes_s = self._desk.now_s()
            self._advance()

    # Called by the router.

    def check_time(self, now_s: float) -> None:
        """Close what has been idle, or slow to send a request, for too long."""
        limits = self._desk.limits
        if now_s > self._lingers_until_s and self._transport is not None:
            self._transport.abort()
        if self._exchange is not None or self._ending:
            return
        if self._began_s is None:
            if now_s - self._last_bytes_s > limits.connection_idle_s or self._desk.draining:
                self._end()
            return
        whole_head = bool(self._queue)
        late = now_s - self._last_bytes_s > limits.body_idle_s if whole_head else now_s - self._began_s > limits.head_s
        if late:
            refusal = Refusal(status=408, code="request_timeout", message="The request did not come in time.")
            self.write(error_answer(refusal, keep_alive=False))
            self._end()

    def close(self) -> None:
        """Close now, in whatever state; an exchange under way is given up."""
        self._end()

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._exchange is not None

    # In here.

    def _look_at_head(self, request: Request) -> _Asked:
        refusal = self._why_refused(request)
        asked = _Asked(request=request, refusal=refusal)
        if refusal is not None:
            request.discard = True
            request.body.clear()
            declared = request.headers.get(b"content-length", b"0")
            long = not declared.isdigit() or int(declared) > self._desk.limits.drain_bytes
            asked.at_once = not request.complete and (
                long or b"expect" in request.headers or b"transfer-encoding" in request.headers
            )
        return asked

    def _why_refused(self, request: Request) -> Refusal | None:
        path = request.target.partition(b"?")[0]
        if path not in OPEN_PATHS and not self._has_key(request.headers.get(b"authorization", b"")):
            return Refusal(
                status=401, code="invalid_api_key", message="Incorrect API key: send `Authorization: Bearer KEY`."
            )
        if path not in _READ and path not in _KINDS:
            shown = path[:200].decode("latin-1")
            return Refusal(status=404, code="unknown_url", message=f"Not served here: {shown}")
        method = b"POST" if path in _KINDS else b"GET"
        if request.method != method:
            return Refusal(
                status=405, code="method_not_allowed", message=f"{path.decode()} takes {method.decode()} only."
            )
        return self._why_body_refused(request.headers)

    def _why_body_refused(self, headers: dict[bytes, bytes]) -> Refusal | None:
        coding = headers.get(b"content-encoding", b"identity").lower()
        if coding not in {b"", b"identity"}:
            return Refusal(
                status=415, code="unsupported_content_encoding", message="Compressed bodies are not taken here."
            )
        if headers.get(b"expect", b"100-continue").lower() != b"100-continue":
            return Refusal(status=417, code="expectation_failed", message="The only expectation met is 100-continue.")
        limit = self._desk.limits.body_bytes
        if int(headers.get(b"content-length", b"0")) > limit:
            return Refusal(status=413, code="too_large", message=f"The body is larger than {limit >> 20} MiB.")
        return None

    def _has_key(self, header: bytes) -> bool:
        scheme, _, token = header.partition(b" ")
        digest = hashlib.sha256(token.strip()).digest()
        return hmac.compare_digest(digest, self._desk.key_digest) and scheme.lower() == b"bearer"

    def _advance(self) -> None:
        """Answer what stands at the head of the queue, one after the other, until one takes time or is incomplete."""
        if self._advancing:
            return  # an answer that was given at once calls back here
        self._advancing = True
        try:
            while self._queue and self._exchange is None and not self._ending:
                asked = self._queue[0]
                if asked.request.complete or asked.at_once:
                    self._queue.popleft()
                    self._answer(asked)
                    continue
                if asked.refusal is None and not asked.continued and b"expect" in asked.request.headers:
                    asked.continued = True
                    if not asked.request.body_bytes:
                        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                break
        finally:
            self._advancing = False
        self._pause_reading(paused=len(self._queue) > self._desk.limits.pipelined)

    def _pause_reading(self, *, paused: bool) -> None:
        transport = self._transport
        if transport is not None and not transport.is_closing() and transport.is_reading() == paused:
            (transport.pause_reading if paused else transport.resume_reading)()

    def _answer(self, asked: _Asked) -> None:
        request = asked.request
        keep_alive = request.keep_alive and not self._desk.draining and not (asked.at_once and not request.complete)
        refusal = asked.refusal
        if refusal is None:
            path = request.target.partition(b"?")[0]
            kind = _KINDS.get(path)
            if kind is None:
                self.write(document(self._desk, path, keep_alive=keep_alive))
                if not keep_alive:
                    self._end()
                return
            refusal = self._begin(request, kind, keep_alive=keep_alive)
            if refusal is None:
                return
        self._desk.metrics.requests["none", refusal.code] += 1
        self.write(error_answer(refusal, keep_alive=keep_alive))
        if not keep_alive:
            self._end(unread=asked.at_once)

    def _begin(self, request: Request, kind: Literal["chat", "completions"], *, keep_alive: bool) -> Refusal | None:
        """Start the exchange, or say why not."""
        desk = self._desk
        if desk.draining:
            return Refusal(status=503, code="draining", message="This service is ending.", retry_after_s=5)
        try:
            body = read_body(bytes(request.body))
            facts = read_facts(body, kind=kind)
        except BodyError as error:
            return Refusal(status=400, code="invalid_body", message=error.message, param=error.param)
        own_id = desk.next_id()
        given = request.headers.get(b"x-request-id", b"")
        exchange = Exchange(
            desk,
            self,
            request=request,
            body=body,
            facts=facts,
            request_id=given.decode() if _REQUEST_ID.fullmatch(given) else own_id,
            keep_alive=keep_alive,
        )
        request.body = bytearray()
        self._exchange = exchange
        exchange.start()
        return None

    def _end(self, *, unread: bool = False) -> None:
        """Close once what was written is on its way.

        With a body still `unread` the kernel would answer it with a reset, which can overtake the answer: so only this
        direction is closed, and what comes is thrown away for a moment (RFC 9112, 9.6).
        """
        self._ending = True
        transport = self._transport
        if transport is None:
            return
        if unread and transport.can_write_eof():
            self._lingers_until_s = self._desk.now_s() + _LINGER_S
            transport.write_eof()
            self._pause_reading(paused=False)
        else:
            transport.close()


_LINGER_S = 5.0
