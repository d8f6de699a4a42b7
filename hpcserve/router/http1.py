"""HTTP/1.1 as bytes: a client's requests in, whatever the pieces. Incremental, strict, without sockets.

RFC 9112. Plain requests are read by `plain`; all others by httptools (llhttp), which refuses what smuggles: both length
and chunked, two lengths, bare line feeds, folded lines.
"""

import httptools

from hpcserve.router.plain import LENGTH_DIGITS, LINE_BYTES, PlainHeads
from hpcserve.router.request import BadMessageError, Request

__all__ = ["BadMessageError", "Request", "RequestReader"]

_CHUNK_BYTES = 20
"""Of a chunk beside its data: a size of 16 digits, and twice CRLF."""


class RequestReader:
    """Bytes of one connection -> `Request`s, any number of them a piece.

    After a piece that is no HTTP, `error` says what was wrong with it; then, or when `ended`, nothing more can be read.
    """

    def __init__(self, *, header_limit_bytes: int, body_limit_bytes: int) -> None:
        self._header_limit_bytes = header_limit_bytes
        self._body_limit_bytes = body_limit_bytes
        self._plain = PlainHeads()
        self._missing = 0
        """Bytes of a plain request's body that are still to come."""
        self._request = Request()
        self._header_bytes = 0
        self._line_bytes = 0
        self._framing_bytes = 0
        """Of a chunked body: what came beside its data, beyond `_CHUNK_BYTES` for each chunk. The pieces that it
        begins and ends in are left out, as they may hold other messages."""
        self._in_head = True
        self.error: BadMessageError | None = None
        self.ended = False
        self._heads: list[Request] = []
        self._parser = httptools.HttpRequestParser(self)

    @property
    def in_message(self) -> bool:
        """Whether a request has begun and is not complete."""
        return self._header_bytes > 0 or not self._in_head

    @property
    def head(self) -> object:
        """Stands for the head of the plain request that was read last: the same for the same bytes but the length."""
        return self._plain.head

    def take_whole(self, data: bytes) -> Request | None:
        """The plain request that this piece is, neither less nor more; None where it is none, and nothing was taken."""
        if not self._in_head or self._header_bytes or not self._request.keep_alive:
            return None
        found = self._read_plain(data, 0)
        if found is None:
            return None
        request, begin = found
        if request.body_bytes != len(data) - begin or request.body_bytes > self._body_limit_bytes:
            return None
        request.body = data[begin:]
        request.complete = True
        self._request = request
        return request

    def _read_plain(self, data: bytes, position: int) -> tuple[Request, int] | None:
        """The plain request that begins here, and where its body does."""
        again = self._plain.read_again(data, position)
        if again is not None:
            return again
        end = data.find(b"\r\n\r\n", position)
        request = None if end < 0 else self._plain.read(data[position:end], limit_bytes=self._header_limit_bytes)
        return None if request is None else (request, end + 4)

    def feed(self, data: bytes) -> list[Request]:
        """Requests that this piece began or went on with, in order; each has its head, and `complete` says the rest."""
        found: list[Request] = []
        position = self._take_plain(data, found)
        if position == len(data):
            return found
        return found + self._feed_parser(data[position:] if position else data)

    def _take_plain(self, data: bytes, found: list[Request]) -> int:
        """Take plain requests from the beginning of a piece; returns the position behind them."""
        position = 0
        if self._missing:
            position = self._take_body(self._request, data, 0)
            found.append(self._request)
        # Between two messages, unless the last one was the last of its connection.
        while position < len(data) and self._in_head and not self._header_bytes and self._request.keep_alive:
            read = self._read_plain(data, position)
            if read is None or read[0].body_bytes > self._body_limit_bytes:
                break
            request, begin = read
            self._request = request
            found.append(request)
            self._missing, request.body_bytes = request.body_bytes, 0
            position = self._take_body(request, data, begin)
        return position

    def _take_body(self, request: Request, data: bytes, position: int) -> int:
        """Take what `data` has of a plain request's body; returns the position behind it."""
        end = min(position + self._missing, len(data))
        piece = data[position:end]
        self._missing -= end - position
        request.body_bytes += end - position
        if not request.discard:
            if request.body:
                request.body += piece
            else:
                request.body = bytearray(piece) if self._missing else piece
        request.complete = self._in_head = not self._missing
        return end

    def _feed_parser(self, data: bytes) -> list[Request]:
        if self._in_head and not self._header_bytes:
            data = data.lstrip(b"\r\n")  # empty lines between messages begin none (RFC 9112, 2.2)
        self._heads = [] if self._in_head else [self._request]
        begun = None if self._in_head else self._request
        body_bytes = self._request.body_bytes
        if self._in_head:
            self._header_bytes += len(data)
        else:
            self._framing_bytes += len(data)
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
        if self.error is None and begun is self._request and not self._in_head:
            self._framing_bytes -= self._request.body_bytes - body_bytes
            if self._framing_bytes > self._header_limit_bytes:
                self.error = BadMessageError("The chunk extensions are too large.")
        return self._heads

    # What follows is called by httptools.

    def on_message_begin(self) -> None:
        """First byte of a message."""
        self._request = Request(body=bytearray())
        self._in_head = True
        self._line_bytes = self._framing_bytes = 0
        self._header_bytes = max(self._header_bytes, 1)

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        self._request.target += url  # may come in pieces
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header, or one trailer: those are counted and dropped, as none may change what the head said."""
        if self._in_head:
            self._request.headers[name.lower()] = value
        self._count(len(name) + len(value) + LINE_BYTES)

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
        if len(headers.get(b"content-length", b"")) > LENGTH_DIGITS:
            self._fail(BadMessageError(f"The Content-Length has more than {LENGTH_DIGITS} digits."))
        request.method = parser.get_method()
        request.http10 = version == "1.0"
        request.keep_alive = parser.should_keep_alive()
        self._in_head = False
        self._header_bytes = 0
        self._heads.append(request)

    def on_chunk_header(self) -> None:
        """The size line of a chunk, its extensions included."""
        self._framing_bytes -= _CHUNK_BYTES

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
