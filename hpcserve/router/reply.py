"""The answer to one client: an engine's bytes passed on, or an error; how each is framed for HTTP/1.1 and for 1.0."""

from typing import Protocol

import msgspec

from hpcserve.router.answers import error_answer, error_event, passed_head
from hpcserve.router.held import Held
from hpcserve.router.pool import Leg
from hpcserve.router.response import ResponseHead
from hpcserve.routing import Refusal

__all__ = ["Client", "Reply"]

_EVENT_END = b"\n\n\r\n"
"""How a chunk that ends with an event ends."""
_EVENT_END_BYTES = len(_EVENT_END)


class Client(Protocol):
    """The connection that a request came on."""

    def write(self, data: bytes) -> None:
        """Send bytes of the response."""

    def finish(self, *, keep_alive: bool) -> None:
        """The response is whole, or cannot be made whole: `keep_alive` False closes the connection."""


class Reply(msgspec.Struct):
    """One of `begin` (then `more`, then `end` or `break_off`), `whole` or `error`; each of these closes the matter.

    After what ends it the client may send its next request at once: so whoever counts must have counted before.
    """

    client: Client
    http10: bool
    request_id: str
    keep_alive: bool
    begun: bool = False
    pieces: int = 0
    """Pieces that were passed on after the first."""
    status: int = 0
    _last: bytes = b""
    """The last piece, or what shows how the bytes so far end."""

    def begin(self, held: Held, leg: Leg, *, route: str) -> None:
        """The first token is there: what was held back goes out in one write."""
        head = held.head
        self.begun = True
        self.status = head.status
        if self.http10 or (head.length is None and not head.chunked):
            self.keep_alive = False
        leg.raw_only = not self.http10
        if leg.raw_only:
            leg.pass_on = self.more_chunk
        self._last = body = held.body(framed=not self.http10)
        self.client.write(self._head(head, route) + body)

    def more(self, raw: bytes, payload: bytes) -> None:
        """Pass a piece on, untouched."""
        self.pieces += 1
        self._last = raw if len(raw) >= _EVENT_END_BYTES else self._last[-_EVENT_END_BYTES:] + raw
        self.client.write(payload if self.http10 else raw)

    def more_chunk(self, chunk: bytes) -> None:
        """The same for one whole chunk: every token of a stream comes by here."""
        self.pieces += 1
        self._last = chunk
        self.client.write(chunk)

    def end(self) -> None:
        """What was passed on is whole."""
        self.client.finish(keep_alive=self.keep_alive)

    def break_off(self, leg: Leg) -> None:
        """It broke: an error event if it broke between two events, and in any case no regular end."""
        between = self._last.endswith(b"\n\n" if self.http10 else _EVENT_END)
        if between and leg.at_boundary:
            message = "The worker that was answering is lost; the answer is incomplete."
            self.client.write(error_event(message, code="worker_lost", chunked=not self.http10))
        self.client.finish(keep_alive=False)

    def whole(self, head: ResponseHead, body: bytes, *, route: str) -> None:
        """A whole answer that was held back goes out in one write; `body` with its framing, but for HTTP/1.0."""
        if head.length is None and (self.http10 or not head.chunked):
            self.keep_alive = False
        self.client.write(self._head(head, route) + body)
        self.client.finish(keep_alive=self.keep_alive)

    def error(self, refusal: Refusal) -> None:
        """An error of the router's own."""
        self.client.write(error_answer(refusal, keep_alive=self.keep_alive, request_id=self.request_id))
        self.client.finish(keep_alive=self.keep_alive)

    def _head(self, head: ResponseHead, route: str) -> bytes:
        return passed_head(
            head,
            route=route.encode(),
            request_id=self.request_id.encode(),
            keep_alive=self.keep_alive,
            http10=self.http10,
        )
