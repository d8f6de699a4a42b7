"""Heads of engines' responses, read strictly (RFC 9112); what a status is called."""

import re

import msgspec

from hpcserve.router.request import BadMessageError

__all__ = ["HEAD_LIMIT_BYTES", "REASONS", "ResponseHead", "parse_response_head", "whole_response"]

HEAD_LIMIT_BYTES = 64 << 10

REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
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


class ResponseHead(msgspec.Struct, kw_only=True):
    """Status and framing of an engine's response. `length` None: chunked, or up to the end of the connection.

    One that came before is the same object: so nobody changes it, but for `passed`, which follows from the rest.
    """

    status: int
    headers: dict[bytes, bytes]
    chunked: bool
    length: int | None
    keep_alive: bool
    whole_bytes: int
    """The length, where the response ends with it and its connection may be used again; else -1."""
    passed: bytes = b""
    """The first lines of the head for an HTTP/1.1 client, once they are written."""


_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*+([^\x00-\x08\x0a-\x1f\x7f]*+)")
_NO_BODY = frozenset({204, 304})


_seen: dict[bytes, ResponseHead] = {}
_MOST_SEEN = 512
_LONGEST_SEEN_BYTES = 2048


def parse_response_head(head: bytes) -> ResponseHead:
    """The head, given without its empty line. Raises BadMessageError for everything that is not strictly a head.

    Engines write the same few heads over and over (their `date` changes once a second): each is looked at once.
    """
    found = _seen.get(head)
    if found is None:
        found = _parse(head)
        if len(_seen) >= _MOST_SEEN:
            _seen.clear()
        if len(head) <= _LONGEST_SEEN_BYTES:
            _seen[head] = found
    return found


def whole_response(data: bytes) -> tuple[ResponseHead, bytes] | None:
    """Head and body, where this is one response with a length, all of it, and its connection may be used again."""
    end = data.find(b"\r\n\r\n")
    if end < 0 or end > HEAD_LIMIT_BYTES:
        return None
    text = data[:end]
    head = _seen.get(text) or parse_response_head(text)
    if head.whole_bytes != len(data) - end - 4:
        return None
    return head, data[end + 4 :]


def _parse(head: bytes) -> ResponseHead:
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
        if name == b"connection" and name in headers:
            value = headers[name] + b"," + value  # one list in several lines (RFC 9110, 5.2)
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
    options = {option.strip(b" \t") for option in headers.get(b"connection", b"").lower().split(b",")}
    stays = b"close" not in options and (status_line[1] == b"1" or b"keep-alive" in options)  # RFC 9112, 9.3
    keep_alive = framed and stays
    return ResponseHead(
        status=status,
        headers=headers,
        chunked=chunked,
        length=length,
        keep_alive=keep_alive,
        whole_bytes=-1 if length is None or not keep_alive or status < _FINAL else length,
    )


_FINAL = 200
"""1xx are interim (RFC 9110, 15.2)."""


_LENGTH_DIGITS = 15
