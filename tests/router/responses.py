"""What a client reads, taken apart strictly: HTTP/1.1 responses one after another, and what each may hold."""

import json
import re
from dataclasses import dataclass, field

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) [A-Za-z0-9 -]+")
_HEADER = re.compile(rb"([a-z-]+): ([\x20-\x7e]*)")
_SIZE = re.compile(rb"[0-9a-f]{1,8}")
_STATUSES = frozenset({200, 400, 401, 403, 404, 405, 408, 413, 415, 417, 431, 501})
"""What docs/router.md lets a client see while all workers are well."""


class BadResponseError(Exception):
    """Bytes that are no response, or one that should not be."""


@dataclass(kw_only=True)
class Response:
    status: int
    headers: dict[bytes, bytes]
    body: bytes = b""
    whole: bool = False


@dataclass(kw_only=True)
class Responses:
    """Everything that one connection sent, read to its end, without `100 Continue`."""

    found: list[Response] = field(default_factory=list)

    @property
    def statuses(self) -> list[int]:
        return [response.status for response in self.found]


def take_apart(data: bytes) -> Responses:
    """The responses of a whole connection; the last may be incomplete. Raises BadResponseError."""
    responses, position = Responses(), 0
    while position < len(data):
        end = data.find(b"\r\n\r\n", position)
        if end < 0:
            if (
                not b"HTTP/1.1 ".startswith(data[position : position + 9])
                and data[position : position + 9] != b"HTTP/1.1 "
            ):
                raise BadResponseError(f"not a response: {data[position : position + 200]!r}")
            break
        response = _head(data[position:end])
        position = end + 4
        if response.status == 100:
            continue
        position = _body(response, data, position)
        responses.found.append(response)
        _judge(response)
        if response.headers[b"connection"] == b"close" and position < len(data):
            raise BadResponseError(f"bytes behind the last response: {data[position : position + 200]!r}")
    return responses


def _head(text: bytes) -> Response:
    first, *lines = text.split(b"\r\n")
    status = _STATUS.fullmatch(first)
    if status is None:
        raise BadResponseError(f"not a status line: {first[:200]!r}")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        match = _HEADER.fullmatch(line)
        if match is None or match[1] in headers:
            raise BadResponseError(f"not a header, or one that stands twice: {line[:200]!r}")
        headers[match[1]] = match[2]
    return Response(status=int(status[1]), headers=headers)


def _body(response: Response, data: bytes, position: int) -> int:
    """Take a body; returns the position behind it."""
    headers = response.headers
    length = headers.get(b"content-length")
    if (length is None) == (headers.get(b"transfer-encoding") is None):
        if length is not None or headers.get(b"connection") != b"close":
            raise BadResponseError(f"a body without one end: {headers}")
        response.body, response.whole = data[position:], True  # HTTP/1.0: up to the end of the connection
        return len(data)
    if length is not None:
        end = position + int(length)
        response.body, response.whole = data[position:end], end <= len(data)
        return min(end, len(data))
    while True:
        end = data.find(b"\r\n", position)
        if end < 0:
            return len(data)
        size = data[position:end]
        if _SIZE.fullmatch(size) is None:
            raise BadResponseError(f"not a chunk: {data[position : position + 200]!r}")
        position = end + 2
        count = int(size, 16)
        if len(data) < position + count + 2:
            return len(data)
        response.body += data[position : position + count]
        if data[position + count : position + count + 2] != b"\r\n":
            raise BadResponseError(f"a chunk without its end: {data[position : position + 200]!r}")
        position += count + 2
        if count == 0:
            response.whole = True
            return position


def _judge(response: Response) -> None:
    """Raise BadResponseError for what no client may see."""
    if response.status not in _STATUSES:
        raise BadResponseError(f"status {response.status}: {response.body[:500]!r}")
    if not response.whole:
        return
    if response.status != 200:
        error = json.loads(response.body)["error"]
        if set(error) != {"message", "type", "param", "code"} or not error["message"]:
            raise BadResponseError(f"not OpenAI's error: {response.body[:500]!r}")
    elif response.headers[b"content-type"] == b"application/json":
        json.loads(response.body)
    elif b'"error"' in response.body:
        raise BadResponseError(f"an error inside a stream: {response.body[-500:]!r}")
