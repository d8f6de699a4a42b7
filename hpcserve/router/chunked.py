"""Chunked bodies of engines: where each ends, and what stands in it. Their bytes are passed on as they came.

RFC 9112, 7.1. Incremental, strict, without sockets.
"""

import re

from hpcserve.router.request import BadMessageError

__all__ = ["ChunkedBody"]

_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?")
_LONGEST_LINE_BYTES = 4096
_LONGEST_TRAILER_BYTES = 16384
_PLAIN_SIZES = {b"%x" % size: size for size in range(1, 2048)}
"""Sizes as engines write them, of all chunks with a token or a few: looked up instead of parsed."""
_PLAIN_DIGITS = 3


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
            if self._left == 0 and not self._line:
                position = self._take_plain(data, position, payload)
                if position == size:
                    break
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

    def is_next_chunk(self, data: bytes) -> bool:
        """Whether this is one chunk, the whole of it and nothing else, as a token of a stream mostly comes.

        Then it is taken by this: there is nothing to remember of it.
        """
        mark = data.find(b"\r\n", 1, _PLAIN_DIGITS + 2)
        size = _PLAIN_SIZES.get(data[:mark])
        return (
            size is not None
            and len(data) == mark + size + 4
            and self._left == 0
            and not self._line
            and data.endswith(b"\r\n")
        )

    def _take_plain(self, data: bytes, position: int, payload: list[bytes] | None) -> int:
        """Take whole chunks of small sizes, from the beginning of one on; returns the position behind them."""
        while True:
            mark = data.find(b"\r\n", position, position + _PLAIN_DIGITS + 2)
            size = _PLAIN_SIZES.get(data[position:mark])
            if size is None or mark < 0:
                return position
            end = mark + 2 + size
            if data[end : end + 2] != b"\r\n":
                return position
            if payload is not None:
                payload.append(data[mark + 2 : end])
            position = end + 2

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
