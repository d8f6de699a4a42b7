"""One client's connection: requests in their order, each answered before the next is looked at."""

import asyncio
import hmac
import re
import socket
from collections import deque
from typing import cast

import msgspec

from hpcserve.engines.handoff import Body, BodyError, read_body, read_facts, salted
from hpcserve.router.access_log import Served
from hpcserve.router.answers import error_answer
from hpcserve.router.desk import Desk
from hpcserve.router.documents import DECISIONS_PATH, OPEN_PATHS, document
from hpcserve.router.exchange import Exchange
from hpcserve.router.http1 import RequestReader
from hpcserve.router.keys import KeyRing, Tenant
from hpcserve.router.kv_prompt import Kind
from hpcserve.router.request import Request
from hpcserve.routing import Refusal

__all__ = ["Session"]

_KINDS: dict[bytes, Kind] = {b"/v1/chat/completions": "chat", b"/v1/completions": "completions"}
_READ = frozenset({*OPEN_PATHS, DECISIONS_PATH, b"/v1/models"})
_LONGEST_PATH = 200
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


_NO_KEY = Refusal(
    status=401, code="invalid_api_key", message="Incorrect API key: send `Authorization: Bearer KEY`."
)  # fmt: skip

_NOT_YOURS = Refusal(
    status=403, code="forbidden", message="Only the job's own key may see this: it tells of everybody's requests."
)  # fmt: skip


def _salted(body: Body, tenant: Tenant) -> Body:
    """The body with its tenant's cache salt; a salt of the client's own is mixed in."""
    if not tenant.salt:
        return body
    own = body.fields.get("cache_salt")
    return salted(body, tenant.salt if own is None else tenant.salt_with(bytes(own)))


class _Asked(msgspec.Struct, kw_only=True):
    """A request in the queue. `refusal`: what it is answered with; `at_once`: without waiting for its body."""

    request: Request
    refusal: Refusal | None = None
    at_once: bool = False
    continued: bool = False


def _path_of(request: Request) -> bytes:
    """Without the query: some put a key there."""
    target = request.target
    return target.partition(b"?")[0] if b"?" in target else target


class Session(asyncio.Protocol):
    """Reads requests, refuses what must be refused, starts an `Exchange` for the rest."""

    def __init__(self, desk: Desk, sessions: set["Session"]) -> None:
        self._desk = desk
        self._outbox = desk.pools.outbox
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
        self._reading_paused = False
        self._writing_paused = False
        """The client takes nothing: then nothing more of it is read, and nothing is begun."""
        self._accepted = b""
        """An `Authorization` that was found right on this connection, by `_accepted_by`."""
        self._accepted_by: KeyRing | None = None
        self._tenant: Tenant | None = None
        self._right_head: object = None
        """The head of a POST that was found right, key and all, by `_accepted_by`."""
        self._lingers_until_s = float("inf")
        self._advancing = False
        self._last_bytes_s = desk.now_s()
        self._began_s: float | None = None

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._sessions.add(self)
        line: socket.socket = transport.get_extra_info("socket")
        patience_ms = int(self._desk.limits.connection_idle_s * 1000)
        # The kernel breaks it off where the client takes nothing for so long, also while it is closed (tcp(7)).
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_ms)

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
        reader = self._reader
        self._last_bytes_s = self._desk.now_s()
        if self._exchange is None and not self._queue and not self._writing_paused:
            alone = reader.take_whole(data)
            if alone is not None:
                self._began_s = None
                self._answer_alone(alone)
                return
        for request in reader.feed(data):
            if request is not self._newest:
                self._newest = request
                self._queue.append(self._look_at_head(request))
        error = reader.error
        self._broken = reader.ended or error is not None
        if error is not None:
            if self._queue and not self._queue[-1].request.complete:
                self._queue.pop()
            refusal = Refusal(status=error.status, code="bad_request", message=error.message)
            self._queue.append(_Asked(request=Request(keep_alive=False), refusal=refusal, at_once=True))
        if reader.in_message:
            self._began_s = self._began_s or self._last_bytes_s
        else:
            self._began_s = None
        self._advance()

    def pause_writing(self) -> None:
        """The client takes bytes slower than they come."""
        self._writing_paused = True
        if self._exchange is not None:
            self._exchange.pause(paused=True)
        if not self._ending:
            self._pause_reading(paused=True)

    def resume_writing(self) -> None:
        """It has caught up."""
        self._writing_paused = False
        if self._exchange is not None:
            self._exchange.pause(paused=False)
        self._last_bytes_s = self._desk.now_s()
        if self._began_s is not None:
            self._began_s = self._last_bytes_s  # it was not the client that let its request wait
        self._advance()

    # Called by the exchange.

    def write(self, data: bytes) -> None:
        """Send bytes of a response."""
        if self._transport is not None:
            self._outbox.put(self._transport, data)

    def finish(self, *, keep_alive: bool) -> None:
        """The response is at its end."""
        self._exchange = None
        if not keep_alive or self._desk.draining:
            self._end()
        else:
            self._last_bytes_s = self._desk.now_s()
            if self._queue or self._reading_paused:
                self._outbox.flush()  # shows whether the client takes it
                self._advance()

    # Called by the router.

    def check_time(self, now_s: float) -> None:
        """Close what has been idle, or slow to send a request, for too long."""
        limits = self._desk.limits
        if now_s > self._lingers_until_s and self._transport is not None:
            self._transport.abort()
        if self._exchange is not None or self._ending:
            return
        if self._writing_paused and not self._desk.draining:
            return  # it has answers to take; the kernel watches whether it does
        if self._began_s is None:
            if now_s - self._last_bytes_s > limits.connection_idle_s or self._desk.draining:
                self._end()
            return
        whole_head = bool(self._queue)
        took_s = now_s - self._began_s
        idle_s = now_s - self._last_bytes_s
        late = (idle_s > limits.body_idle_s or took_s > limits.body_s) if whole_head else took_s > limits.head_s
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
            request.body = b""
            declared = request.headers.get(b"content-length", b"0")
            long = not declared.isdigit() or int(declared) > self._desk.limits.drain_bytes
            asked.at_once = not request.complete and (
                long or b"expect" in request.headers or b"transfer-encoding" in request.headers
            )
        return asked

    def _why_refused(self, request: Request) -> Refusal | None:
        headers, path = request.headers, _path_of(request)
        if path not in OPEN_PATHS:
            tenant = self._tenant_of(headers.get(b"authorization", b""))
            if tenant is None:
                return _NO_KEY
            if path == DECISIONS_PATH and tenant.name:
                return _NOT_YOURS
        if path not in _KINDS and path not in _READ:
            shown = path[:200].decode("latin-1")
            return Refusal(status=404, code="unknown_url", message=f"Not served here: {shown}")
        method = b"POST" if path in _KINDS else b"GET"
        if request.method != method:
            return Refusal(
                status=405, code="method_not_allowed", message=f"{path.decode()} takes {method.decode()} only."
            )
        return self._why_body_refused(headers)

    def _why_body_refused(self, headers: dict[bytes, bytes]) -> Refusal | None:
        coding = headers.get(b"content-encoding", b"")
        if coding and coding.lower() != b"identity":
            return Refusal(
                status=415, code="unsupported_content_encoding", message="Compressed bodies are not taken here."
            )
        expect = headers.get(b"expect")
        if expect is not None and expect.lower() != b"100-continue":
            return Refusal(status=417, code="expectation_failed", message="The only expectation met is 100-continue.")
        limit = self._desk.limits.body_bytes
        if int(headers.get(b"content-length", b"0")) > limit:
            return Refusal(status=413, code="too_large", message=f"The body is larger than {limit >> 20} MiB.")
        return None

    def _tenant_of(self, header: bytes) -> Tenant | None:
        keys = self._desk.keys
        if keys is self._accepted_by and header and hmac.compare_digest(header, self._accepted):
            return self._tenant
        tenant = keys.tenant_of(header)
        if tenant is not None:
            if keys is not self._accepted_by:
                self._right_head = None  # its key may be one that was taken back
            self._accepted, self._accepted_by, self._tenant = header, keys, tenant
        return tenant

    def _advance(self) -> None:
        """Answer what stands at the head of the queue, one after the other, until one takes time or is incomplete."""
        if self._advancing:
            return  # an answer that was given at once calls back here
        self._advancing = True
        try:
            while self._queue and self._exchange is None and not self._ending and not self._writing_paused:
                asked = self._queue[0]
                if asked.request.complete or asked.at_once:
                    self._queue.popleft()
                    self._answer(asked.request, asked.refusal, at_once=asked.at_once)
                    continue
                if asked.refusal is None and not asked.continued and b"expect" in asked.request.headers:
                    asked.continued = True
                    if not asked.request.body_bytes and not asked.request.http10:  # which knows no 100 (RFC 9110, 15.2)
                        self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                break
        finally:
            self._advancing = False
        paused = not self._ending and (self._writing_paused or len(self._queue) > self._desk.limits.pipelined)
        if paused != self._reading_paused:
            self._pause_reading(paused=paused)

    def _pause_reading(self, *, paused: bool) -> None:
        self._reading_paused = paused
        transport = self._transport
        if transport is not None and not transport.is_closing() and transport.is_reading() == paused:
            (transport.pause_reading if paused else transport.resume_reading)()

    def _answer_alone(self, request: Request) -> None:
        """Answer a whole request that nobody stands before; a head that is known to be right is not judged anew."""
        head, desk = self._reader.head, self._desk
        if head is None or head is not self._right_head or desk.keys is not self._accepted_by:
            refusal = self._why_refused(request)
            self._right_head = head if refusal is None else None
            self._answer(request, refusal)
            return
        path = _path_of(request)
        keep_alive = not desk.draining
        refusal = self._begin(request, path, _KINDS[path], keep_alive=keep_alive)
        if refusal is not None:
            self._refuse(request, refusal, keep_alive=keep_alive)

    def _answer(self, request: Request, refusal: Refusal | None, *, at_once: bool = False) -> None:
        keep_alive = request.keep_alive and not self._desk.draining and not (at_once and not request.complete)
        if refusal is None:
            path = _path_of(request)
            kind = _KINDS.get(path)
            if kind is None:
                self.write(document(self._desk, path, keep_alive=keep_alive))
                if not keep_alive:
                    self._end()
                return
            refusal = self._begin(request, path, kind, keep_alive=keep_alive)
            if refusal is None:
                return
        self._refuse(request, refusal, keep_alive=keep_alive, unread=at_once)

    def _refuse(self, request: Request, refusal: Refusal, *, keep_alive: bool, unread: bool = False) -> None:
        self._note_refusal(request, refusal)
        answer = error_answer(refusal, keep_alive=keep_alive)
        # An answer to HEAD has no body, whatever its length says (RFC 9110, 9.3.2): it would pass for the next answer.
        self.write(answer[: answer.index(b"\r\n\r\n") + 4] if request.method == b"HEAD" else answer)
        if not keep_alive:
            self._end(unread=unread)

    def _note_refusal(self, request: Request, refusal: Refusal) -> None:
        desk = self._desk
        desk.metrics.requests["none", refusal.code] += 1
        if desk.access is not None:
            path = _path_of(request)[:_LONGEST_PATH].decode("latin-1")
            given = request.headers.get(b"x-request-id", b"")
            desk.access.add(
                Served(
                    request_id=given.decode() if _REQUEST_ID.fullmatch(given) else "",
                    tenant="",
                    path=path,
                    route="-",
                    status=refusal.status,
                    end=refusal.code,
                )
            )

    def _begin(self, request: Request, path: bytes, kind: Kind, *, keep_alive: bool) -> Refusal | None:
        """Start the exchange, or say why not."""
        desk = self._desk
        if desk.draining:
            return Refusal(status=503, code="draining", message="This service is ending.", retry_after_s=5)
        try:
            body = read_body(bytes(request.body))
            facts = read_facts(body, kind=kind)
        except BodyError as error:
            return Refusal(status=400, code="invalid_body", message=error.message, param=error.param)
        tenant = None
        if desk.keys.tenants:
            tenant = self._tenant_of(request.headers.get(b"authorization", b""))
            if tenant is None:  # taken back since the head came
                return _NO_KEY
            desk.metrics.tenants[tenant.name] += 1
            body = _salted(body, tenant)
        own_id = desk.next_id()
        given = request.headers.get(b"x-request-id")
        exchange = Exchange(
            desk,
            self,
            request=request,
            path=path,
            body=body,
            facts=facts,
            request_id=given.decode() if given is not None and _REQUEST_ID.fullmatch(given) else own_id,
            tenant="" if tenant is None else tenant.name,
            keep_alive=keep_alive,
        )
        request.body = b""
        self._exchange = exchange
        exchange.start(kind)
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
        self._outbox.flush()
        if unread and transport.can_write_eof():
            self._lingers_until_s = self._desk.now_s() + _LINGER_S
            transport.write_eof()
            self._pause_reading(paused=False)
        else:
            transport.close()


_LINGER_S = 5.0
