"""A response that is held back until it is clear what it is worth."""

from hpcserve.router.first_token import FirstToken, StreamStart
from hpcserve.router.http1 import ResponseHead

__all__ = ["Held"]

_OK = 200


class Held:
    """Head and body of one leg, until they are passed on or thrown away."""

    __slots__ = ("_payload", "_raw", "_start", "head", "size")

    def __init__(self, *, stream: bool) -> None:
        """`stream`: it should be a stream of events, and is held back to its first token only."""
        self.head: ResponseHead | None = None
        self.size = 0
        """Bytes of the body so far."""
        self._raw: list[bytes] = []
        self._payload: list[bytes] = []
        self._start = StreamStart() if stream else None

    @property
    def is_stream(self) -> bool:
        """Whether a first token is waited for; an answer of another status than 200 has none."""
        return self._start is not None

    def take_head(self, head: ResponseHead) -> None:
        """Status and headers."""
        self.head = head
        if head.status != _OK:
            self._start = None

    def take(self, raw: bytes, payload: bytes) -> FirstToken:
        """A piece of the body, as it came and without its framing; says whether the first token is there."""
        self.size += len(raw)
        self._raw.append(raw)
        self._payload.append(payload)
        return FirstToken.PENDING if self._start is None else self._start.feed(payload)

    def raw(self) -> bytes:
        """The body as it came."""
        return b"".join(self._raw)

    def payload(self) -> bytes:
        """The body without its framing."""
        return b"".join(self._payload)
