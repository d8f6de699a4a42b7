"""A response that is held back until it is clear what it is worth."""

from hpcserve.router.first_token import FirstToken, StreamStart
from hpcserve.router.response import ResponseHead

__all__ = ["Held"]


class Held:
    """The response of one leg, until it is passed on or thrown away."""

    __slots__ = ("_payload", "_raw", "_start", "head", "size")

    def __init__(self, head: ResponseHead, *, stream: bool) -> None:
        """`stream`: it should be a stream of events, and is held back to its first token only."""
        self.head = head
        self.size = 0
        """Bytes of the body so far."""
        self._raw: list[bytes] = []
        self._payload: list[bytes] = []
        self._start = StreamStart() if stream else None

    def take(self, raw: bytes, payload: bytes) -> FirstToken:
        """A piece of the body, as it came and without its framing; says whether the first token is there."""
        self.size += len(raw)
        self._raw.append(raw)
        self._payload.append(payload)
        return FirstToken.PENDING if self._start is None else self._start.feed(payload)

    @property
    def awaits_token(self) -> bool:
        """Whether it should be a stream."""
        return self._start is not None

    def body(self, *, framed: bool) -> bytes:
        """The body so far: as it came, or without its framing."""
        return b"".join(self._raw if framed else self._payload)
