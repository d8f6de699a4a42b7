"""What the router writes itself: heads to engines and clients, OpenAI-style errors, small JSON, error events."""

import msgspec

from hpcserve.router.request import Request
from hpcserve.router.response import REASONS, ResponseHead
from hpcserve.routing import Refusal

__all__ = [
    "engine_head",
    "engine_lines",
    "error_answer",
    "error_event",
    "error_text",
    "head_of",
    "json_answer",
    "passed_head",
    "traced_lines",
    "traceparent_of",
]


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
    lines = head.passed
    if http10 or not lines:
        lines = _passed_lines(head, http10=http10)
        if not http10:
            head.passed = lines
    connection = b"keep-alive" if keep_alive else b"close"
    return b"%bx-request-id: %b\r\nx-hpcserve-route: %b\r\nconnection: %b\r\n\r\n" % (
        lines,
        request_id,
        route,
        connection,
    )


def _passed_lines(head: ResponseHead, *, http10: bool) -> bytes:
    headers = head.headers
    lines = [b"HTTP/1.1 %d %b" % (head.status, REASONS.get(head.status, "Unknown").encode())]
    lines += [b"%b: %b" % (name, headers[name]) for name in _PASSED if name in headers]
    if head.length is not None:
        lines.append(b"content-length: %d" % head.length)
    elif head.chunked and not http10:
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join(lines) + b"\r\n"


def engine_lines(path: bytes, *, authority: bytes, key: bytes) -> bytes:
    """The lines of a head that are the same for all requests of one path to one engine."""
    lines = [b"POST %b HTTP/1.1" % path, b"host: " + authority, b"content-type: application/json"]
    if key:
        lines.append(b"authorization: Bearer " + key)
    return b"\r\n".join(lines) + b"\r\n"


def traced_lines(request: Request) -> bytes:
    """The trace context that is passed on (W3C Trace Context)."""
    headers = request.headers
    if b"traceparent" not in headers and b"tracestate" not in headers:
        return b""
    return b"".join(b"%b: %b\r\n" % (name, headers[name]) for name in _TRACED if name in headers)


_TRACED = (b"traceparent", b"tracestate")


def traceparent_of(traced: bytes) -> str:
    """The `traceparent` among such lines; empty where there is none."""
    for line in traced.splitlines():
        if line.startswith(b"traceparent: "):
            return line[13:].decode("latin-1")
    return ""


def engine_head(lines: bytes, *, length: int, request_id: str, traced: bytes) -> bytes:
    """A head from scratch: nothing that a client wrote shapes it but the path, the trace context and the id."""
    return b"%bcontent-length: %d\r\nx-request-id: %b\r\n%b\r\n" % (lines, length, request_id.encode(), traced)
