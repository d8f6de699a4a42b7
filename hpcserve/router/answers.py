"""What the router writes itself: heads to engines and clients, OpenAI-style errors, small JSON, error events."""

import msgspec

from hpcserve.router.http1 import REASONS, Request, ResponseHead
from hpcserve.routing import Refusal

__all__ = ["engine_head", "error_answer", "error_event", "error_text", "head_of", "json_answer", "passed_head"]


def error_text(status: int, message: str, *, code: str | None = None, param: str | None = None) -> bytes:
    """The error object as OpenAI's API writes it: of a 401 and a 404, too, it says `invalid_request_error`."""
    kind = "invalid_request_error" if status < 500 else "server_error"  # noqa: PLR2004 - HTTP
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": code}})


def head_of(
    status: int, *, content_type: str, length: int, keep_alive: bool, headers: tuple[tuple[str, str], ...] = ()
) -> bytes:
    """A response head with a length."""
    lines = [
        f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}",
        f"content-type: {content_type}",
        f"content-length: {length}",
        *(f"{name}: {value}" for name, value in headers),
        "connection: keep-alive" if keep_alive else "connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def json_answer(status: int, text: bytes, *, keep_alive: bool, headers: tuple[tuple[str, str], ...] = ()) -> bytes:
    """A whole response that carries JSON."""
    return (
        head_of(status, content_type="application/json", length=len(text), keep_alive=keep_alive, headers=headers)
        + text
    )


def error_answer(refusal: Refusal, *, keep_alive: bool, request_id: str = "") -> bytes:
    """A whole response that carries an error."""
    headers: list[tuple[str, str]] = []
    if refusal.retry_after_s is not None:
        headers.append(("retry-after", str(refusal.retry_after_s)))
    if refusal.status == 401:  # noqa: PLR2004 - RFC 9110, 11.6.1: a 401 names the scheme
        headers.append(("www-authenticate", "Bearer"))
    if request_id:
        headers.append(("x-request-id", request_id))
    text = error_text(refusal.status, refusal.message, code=refusal.code, param=refusal.param)
    return json_answer(refusal.status, text, keep_alive=keep_alive, headers=tuple(headers))


def error_event(message: str, *, code: str, chunked: bool) -> bytes:
    """The last event of a stream that cannot be finished; as a chunk, without the chunk that would end the body."""
    event = b"data: " + error_text(502, message, code=code) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event) if chunked else event


_PASSED = (b"content-type", b"retry-after", b"cache-control")


def passed_head(head: ResponseHead, *, route: bytes, request_id: bytes, keep_alive: bool, http10: bool) -> bytes:
    """The head for the client of a response whose body is passed on; the engine's own framing, nothing else of it."""
    headers = head.headers
    lines = [b"HTTP/1.1 %d %b" % (head.status, REASONS.get(head.status, "Unknown").encode())]
    lines += [b"%b: %b" % (name, headers[name]) for name in _PASSED if name in headers]
    if head.length is not None:
        lines.append(b"content-length: %d" % head.length)
    elif head.chunked and not http10:
        lines.append(b"transfer-encoding: chunked")
    lines.append(b"x-request-id: " + request_id)
    lines.append(b"x-hpcserve-route: " + route)
    lines.append(b"connection: keep-alive\r\n\r\n" if keep_alive else b"connection: close\r\n\r\n")
    return b"\r\n".join(lines)


_FORWARDED = (b"traceparent", b"tracestate")


def engine_head(request: Request, *, authority: str, length: int, request_id: str, key: bytes) -> bytes:
    """A head from scratch: nothing that a client wrote shapes it but the path, the trace context and the id."""
    headers = request.headers
    lines = [
        b"POST %b HTTP/1.1" % request.target.partition(b"?")[0],
        b"host: " + authority.encode(),
        b"content-type: application/json",
        b"content-length: %d" % length,
        b"x-request-id: " + request_id.encode(),
    ]
    if key:
        lines.append(b"authorization: Bearer " + key)
    lines += [b"%b: %b" % (name, headers[name]) for name in _FORWARDED if name in headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"
