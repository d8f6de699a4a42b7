"""The answer to one client: an engine's bytes passed on, or an error; how each is framed for HTTP/1.1 and for 1.0."""

from typing import Protocol

from hpcserve.router.answers import error_answer, error_event, passed_head
from hpcserve.router.held import Held
from hpcserve.router.http1 import Request, ResponseHead
from hpcserve.router.pool import Leg
from hpcserve.routing import Refusal

__all__ = ["Client", "Reply"]

_EVENT_END = b"\n\n\r\n"
"""How a chunk that ends with an event ends."""


class Client(Protocol):
    """The connection that a request came on."""

    def write(self, data: bytes) -> None:
        """Send bytes of the response."""

    def finish(self, *, keep_alive: bool) -> None:
        """The response is whole, or cannot be made whole: `keep_alive` False closes the connection."""


class Reply:
    """One of `begin` (then `more`, then `end` or `break_off`), `whole` or `error`; each of these closes the matter.

    After what ends it the client may send its next request at once: so whoever counts must have counted before.
    """

    __slots__ = ("_client", "_http10", "_keep_alive", "_request_id", "_tail", "begun", "pieces", "status")

    def __init__(self, client: Client, request: Request, *, request_id: str, keep_alive: bool) -> None:
        self._client = client
        self._http10 = request.http10
        self._request_id = request_id
        self._keep_alive = keep_alive
        self._tail = b""
        self.begun = False
        self.pieces = 0
        """Pieces that were passed on after the first."""
        self.status = 0

    def begin(self, head: ResponseHead, held: Held, leg: Leg, *, route: str) -> None:
        """The first token is there: what was held back goes out in one write."""
        self.begun = True
        self.status = head.status
        if self._http10 or (head.length is None and not head.chunked):
            self._keep_alive = False
        leg.raw_only = not self._http10
        body = held.payload() if self._http10 else held.raw()
        self._tail = body[-len(_EVENT_END) :]
        self._client.write(self._head(head, route) + body)

    def more(self, raw: bytes, payload: bytes) -> None:
        """Pass a piece on, untouched."""
        self.pieces += 1
        size = len(_EVENT_END)
        self._tail = raw[-size:] if len(raw) >= size else (self._tail + raw)[-size:]
        self._client.write(payload if self._http10 else raw)

    def end(self) -> None:
        """What was passed on is whole."""
        self._client.finish(keep_alive=self._keep_alive)

    def break_off(self, leg: Leg) -> None:
        """It broke: an error event if it broke between two events, and in any case no regular end."""
        between = self._tail.endswith(b"\n\n" if self._http10 else _EVENT_END)
        if between and leg.at_boundary:
            message = "The worker that was answering is lost; the answer is incomplete."
            self._client.write(error_event(message, code="worker_lost", chunked=not self._http10))
        self._client.finish(keep_alive=False)

    def whole(self, head: ResponseHead, held: Held, *, route: str) -> None:
        """A whole answer that was held back goes out in one write."""
        if head.length is None and (self._http10 or not head.chunked):
            self._keep_alive = False
        body = held.payload() if self._http10 else held.raw()
        self._client.write(self._head(head, route) + body)
        self._client.finish(keep_alive=self._keep_alive)

    def error(self, refusal: Refusal) -> None:
        """An error of the router's own."""
        self._client.write(error_answer(refusal, keep_alive=self._keep_alive, request_id=self._request_id))
        self._client.finish(keep_alive=self._keep_alive)

    def _head(self, head: ResponseHead, route: str) -> bytes:
        return passed_head(
            head,
            route=route.encode(),
            request_id=self._request_id.encode(),
            keep_alive=self._keep_alive,
            http10=self._http10,
        )
