"""One request of a client, as far as it has come; and what is raised for bytes that are none."""

import msgspec

__all__ = ["BadMessageError", "Request"]


class BadMessageError(ValueError):
    """Bytes that are not the HTTP they should be; `status` is what a client is told."""

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class Request(msgspec.Struct, kw_only=True):
    """One request as it arrives. Header names in lower case; of a name that stands twice the last counts."""

    method: bytes = b""
    target: bytes = b""
    headers: dict[bytes, bytes] = {}  # msgspec makes a new one each time
    http10: bool = False
    keep_alive: bool = True
    body: bytes | bytearray = b""
    body_bytes: int = 0
    discard: bool = False
    """The body is read to its end and thrown away: the request is refused already."""
    complete: bool = False
