"""HTTP/1.1 as bytes: requests in, response heads and bodies in, heads out. Incremental, strict, without sockets.

RFC 9112. Requests are read by httptools (llhttp), which refuses what smuggles: both length and chunked, two lengths,
bare line feeds, folded lines. Responses of engines are read here, because their bytes are passed on as they came.
"""

import re
from dataclasses import dataclass, field

import httptools

__all__ = [
    "REASONS",
    "BadMessageError",
    "ChunkedBody",
    "Request",
    "RequestReader",
    "ResponseHead",
    "parse_response_head",
]

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}


class BadMessageError(ValueError):
    """Bytes that are not the HTTP they should be; `status` is what a client is told."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


@dataclass(slots=True, kw_only=True)
class Request:
    """One request as it arrives. Header names in lower case; of a name that stands twice the last counts."""

    method: bytes = b""
    target: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    http10: bool = False
    keep_alive: bool = True
    body: bytearray = field(default_factory=bytearray)
    body_bytes: int = 0
    discard: bool = False
    """The body is read to its end and thrown away: the request is refused already."""
    complete: bool = False


class RequestReader:
    """Bytes of one connection -> `Request`s, any number of them a piece.

    After a piece that is no HTTP, `error` says what was wrong with it; then, or when `ended`, nothing more can be read.
    """

    def __init__(self, *, header_limit_bytes: int, body_limit_bytes: int) -> None:
        self._header_limit_bytes = header_limit_bytes
        self._body_limit_bytes = body_limit_bytes
        self._request = Request()
        self._header_bytes = 0
        self._line_bytes = 0
        self._in_head = True
        self.error: BadMessageError | None = None
        self.ended = False
        self._heads: list[Request] = []
        self._parser = httptools.HttpRequestParser(self)

    @property
    def in_message(self) -> bool:
        """Whether a request has begun and is not complete."""
        return self._header_bytes > 0 or not self._in_head

    def feed(self, data: bytes) -> list[Request]:
        """Requests that this piece began or went on with, in order; each has its head, and `complete` says the rest."""
        self._heads = [] if self._in_head else [self._request]
        if self._in_head:
            self._header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._request.keep_alive = False  # answered as if it had not asked (RFC 9110, 7.8), and then closed
            self.ended = True
        except httptools.HttpParserCallbackError:
            if self.error is None:
                raise
        except httptools.HttpParserError as error:
            self.error = BadMessageError(f"Not an HTTP request: {error}.")
        if self.error is None and self._in_head and self._header_bytes > self._header_limit_bytes:
            self.error = BadMessageError("The request's head is too large.", status=431)
        return self._heads

    # What follows is called by httptools.

    def on_message_begin(self) -> None:
        """First byte of a message."""
        self._request = Request()
        self._in_head = True
        self._line_bytes = 0
        self._header_bytes = max(self._header_bytes, 1)

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._request.target += url  # may come in pieces
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._request.headers[name.lower()] = value
        self._count(len(name) + len(value) + _LINE_BYTES)

    def on_headers_complete(self) -> None:
        """The head is complete."""
        request = self._request
        parser = self._parser
        headers = request.headers
        version = parser.get_http_version()
        if version not in {"1.1", "1.0"}:
            self._fail(BadMessageError(f"HTTP/{version} is not supported here."))
        coding = headers.get(b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            self._fail(BadMessageError("The only transfer coding supported here is chunked.", status=501))
        request.method = parser.get_method()
        request.http10 = version == "1.0"
        request.keep_alive = parser.should_keep_alive()
        self._in_head = False
        self._header_bytes = 0
        self._heads.append(request)

    def on_body(self, data: bytes) -> None:
        """A piece of the body, without its framing."""
        request = self._request
        request.body_bytes += len(data)
        if request.body_bytes > self._body_limit_bytes:
            self._fail(BadMessageError(f"The body is larger than {self._body_limit_bytes >> 20} MiB.", status=413))
        if not request.discard:
            request.body += data

    def on_message_complete(self) -> None:
        """The message is complete."""
        self._request.complete = True
        self._in_head = True
        self._header_bytes = 0

    def _count(self, size: int) -> None:
        """The pieces that a head comes in say nothing of its size where its body comes with it: so each line counts."""
        self._line_bytes += size
        if self._line_bytes > self._header_limit_bytes:
            self._fail(BadMessageError("The request's head is too large.", status=431))

    def _fail(self, error: BadMessageError) -> None:
        self.error = error
        raise error


_LINE_BYTES = 200
"""What a header costs in memory beside its bytes; so many short ones count as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """Status and framing of an engine's response. `length` None: chunked, or up to the end of the connection."""

    status: int
    headers: dict[bytes, bytes]
    chunked: bool
    length: int | None
    keep_alive: bool


_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_NO_BODY = frozenset({204, 304})


def parse_response_head(head: bytes) -> ResponseHead:
    """The head, given without its empty line. Raises BadMessageError for everything that is not strictly a head."""
    lines = head.split(b"\r\n")
    status_line = _STATUS_LINE.fullmatch(lines[0])
    if status_line is None:
        raise BadMessageError("bad status line")
    headers: dict[bytes, bytes] = {}
    for line in lines[1:]:
        match = _HEADER_LINE.fullmatch(line)
        if match is None:
            raise BadMessageError("bad header line")
        name = match[1].lower()
        value = match[2].rstrip(b" \t")
        if name in headers and name in {b"content-length", b"transfer-encoding"}:
            raise BadMessageError("a framing header stands twice")
        headers[name] = value
    status = int(status_line[2])
    coding = headers.get(b"transfer-encoding")
    text = headers.get(b"content-length")
    if coding is not None and (coding.lower() != b"chunked" or text is not None):
        raise BadMessageError("a transfer coding that is not plain chunked")
    if text is not None and (not text.isdigit() or len(text) > _LENGTH_DIGITS):
        raise BadMessageError("a content length that is no number")
    length = 0 if status in _NO_BODY else None if text is None else int(text)
    chunked = coding is not None and length is None
    framed = chunked or length is not None
    connection = headers.get(b"connection", b"").lower()
    keep_alive = framed and (connection == b"keep-alive" if status_line[1] == b"0" else connection != b"close")
    return ResponseHead(status=status, headers=headers, chunked=chunked, length=length, keep_alive=keep_alive)


_LENGTH_DIGITS = 15
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_LONGEST_LINE_BYTES = 4096
_LONGEST_TRAILER_BYTES = 16384


class ChunkedBody:
    """Follows a chunked body piece by piece; linear in the bytes, whatever the pieces."""

    __slots__ = ("_left", "_line", "_trailer_bytes", "ended")

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the current chunk still to come, its final CRLF included; 0: a size line comes; -1: trailers."""
        self._line = b""
        """The beginning of a line whose end has not come."""
        self._trailer_bytes = 0
        self.ended = False

    @property
    def at_boundary(self) -> bool:
        """Whether the bytes so far end with a whole chunk."""
        return self._left == 0 and not self._line

    def feed(self, data: bytes, payload: list[bytes] | None = None) -> int:
        """Take a piece; returns how many of its last bytes lie behind the end of the body (0 while it has not ended).

        The chunks' own data is appended to `payload`, if given. Raises BadMessageError.
        """
        position, size = 0, len(data)
        while position < size:
            if self._left > 0:
                position = self._take_data(data, position, payload)
                continue
            end = data.find(b"\n", position)
            if end < 0:
                self._line += data[position:]
                self._check_line()
                break
            line = self._line + data[position : end + 1]
            self._line = b""
            position = end + 1
            if line[-2:] != b"\r\n" or len(line) > _LONGEST_LINE_BYTES:
                raise BadMessageError("bad line in a chunked body")
            if self._left < 0:
                self._trailer_bytes += len(line)
                if self._trailer_bytes > _LONGEST_TRAILER_BYTES:
                    raise BadMessageError("trailers too long")
                if line == b"\r\n":
                    self.ended = True
                    return size - position
                continue
            match = _SIZE_LINE.fullmatch(line, 0, len(line) - 2)
            if match is None:
                raise BadMessageError("bad chunk size")
            length = int(match[1], 16)
            self._left = length + 2 if length else -1
        return 0

    def _take_data(self, data: bytes, position: int, payload: list[bytes] | None) -> int:
        """Take what `data` holds of the current chunk; returns the position behind it."""
        take = min(self._left, len(data) - position)
        body = min(take, max(self._left - 2, 0))
        if payload is not None and body:
            payload.append(data[position : position + body])
        for index in range(body, take):  # at most the two bytes of the final CRLF
            wanted = 13 if self._left - index == 2 else 10  # noqa: PLR2004 - two bytes are left: CR, then LF
            if data[position + index] != wanted:
                raise BadMessageError("a chunk without its final CRLF")
        self._left -= take
        return position + take

    def _check_line(self) -> None:
        if len(self._line) > _LONGEST_LINE_BYTES:
            raise BadMessageError("bad line in a chunked body")
