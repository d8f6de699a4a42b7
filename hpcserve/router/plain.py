"""Request heads of the plain kind, read without callbacks: what OpenAI clients send, and nothing that needs judgement.

Whatever is not plain (another method or version, chunked, an expectation, a name that stands twice, a character out of
the ordinary) is left to httptools, so that one parser decides what is refused. Both must say the same of what is plain.
"""

import re

from hpcserve.router.request import Request

__all__ = ["LENGTH_DIGITS", "LINE_BYTES", "PlainHeads"]

_START = re.compile(rb"(GET|POST) (/[A-Za-z0-9/?._~!$&'()*+,;=:@%-]*) HTTP/1\.1")
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*+((?:[\t -~]*[!-~])?)")
_LENGTH_LINE = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ([0-9]{1,15})(?![^\r])")
"""What differs between the heads of one client is mostly this line alone."""
_LENGTH = b"content-length: "
_LENGTH_BYTES = len(_LENGTH)
LENGTH_DIGITS = 15
"""The longest `Content-Length` that is read, zeros before it included."""
_JUDGED = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"connection", b"proxy-connection", b"keep-alive"})
"""Names that change how a message is read or what becomes of the connection (RFC 9110, RFC 9112)."""
LINE_BYTES = 200
"""What a header costs in memory beside its bytes; so many short ones count as well."""
_MOST_KNOWN = 48
_LONGEST_KNOWN_BYTES = 512


class PlainHeads:
    """Reads the heads of one connection. Its lines come again and again, so each is looked at once."""

    __slots__ = ("_after", "_before", "_known", "_last", "_method", "_start", "_target", "head")

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[bytes, bytes]] = {}
        self._start: bytes | None = None
        self._method = b""
        self._target = b""
        self._before = b""
        """The last head up to its length, and `_after`, what followed it; `_last`, what was read in it."""
        self._after = b""
        self._last = Request()
        self.head: object = None
        """Stands for the head that was read last, but for its length: the same object for the same bytes."""

    def read_again(self, data: bytes, position: int) -> tuple[Request, int] | None:
        """The request that begins here and where its body does, if its head is the last one but for its length."""
        before = self._before
        if not before or not data.startswith(before, position):
            return None
        start = position + len(before)
        end = data.find(b"\r", start, start + LENGTH_DIGITS + 1)
        if end < 0 or not data.startswith(self._after, end):
            return None
        length = data[start:end]
        if not length.isdigit():
            return None
        self.head = last = self._last
        headers = {**last.headers, b"content-length": length}
        request = Request(method=last.method, target=last.target, headers=headers, body_bytes=int(length))
        return request, end + len(self._after)

    def read(self, head: bytes, *, limit_bytes: int) -> Request | None:
        """The request, given its head without the empty line; None where it is not plain, or near the limit.

        Its `body_bytes` are those that are to come.
        """
        self.head = None
        match = _LENGTH_LINE.search(head)
        if match is None:
            return self._read_lines(head, limit_bytes)
        found = self._read_lines(head, limit_bytes - LENGTH_DIGITS)
        if found is not None:
            begin, end = match.span(1)
            self._before, self._after = head[:begin], head[end:] + b"\r\n\r\n"
            self.head = self._last = Request(method=found.method, target=found.target, headers=found.headers.copy())
        return found

    def _read_lines(self, head: bytes, limit_bytes: int) -> Request | None:
        start, *lines = head.split(b"\r\n")
        if len(head) + LINE_BYTES * len(lines) > limit_bytes or (start != self._start and not self._take_start(start)):
            return None
        known = self._known
        headers = {}
        for line in lines:
            pair = known.get(line) or self._look_at(line)
            if pair is None:
                return None
            headers[pair[0]] = pair[1]
        if len(headers) != len(lines):
            return None
        if (b"content-length" in headers) != (self._method == b"POST"):
            return None
        length = int(headers.get(b"content-length", b"0"))
        return Request(method=self._method, target=self._target, headers=headers, body_bytes=length)

    def _take_start(self, start: bytes) -> bool:
        match = _START.fullmatch(start)
        if match is None:
            return False
        self._start, self._method, self._target = start, match[1], match[2]
        return True

    def _look_at(self, line: bytes) -> tuple[bytes, bytes] | None:
        if line[:_LENGTH_BYTES].lower() == _LENGTH:  # another one every time
            digits = line[_LENGTH_BYTES:]
            return (b"content-length", digits) if digits.isdigit() and len(digits) <= LENGTH_DIGITS else None
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        name, value = match[1].lower(), match[2]
        if name in _JUDGED and (name != b"connection" or value.lower() != b"keep-alive"):
            return None
        if name == b"content-length":
            return None
        pair = (name, value)
        if len(self._known) < _MOST_KNOWN and len(line) <= _LONGEST_KNOWN_BYTES:
            self._known[line] = pair
        return pair
