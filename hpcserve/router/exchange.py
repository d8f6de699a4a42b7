"""The life of one request: prefill leg, decode leg, pass through; or one leg for both; and what happens when one fails.

Callbacks only. Until the first token (of a stream) or the whole answer is there, the client has seen nothing and the
request can start over; after it, what the engine sends is passed on untouched, and a stream that breaks ends with an
error event.
"""

from typing import Literal, Protocol

from hpcserve.engines.handoff import Body, RequestFacts, decode_body, prefill_body, read_answer, whole_body
from hpcserve.router.answers import error_answer, error_event, passed_head
from hpcserve.router.desk import Desk
from hpcserve.router.first_token import FirstToken, StreamStart
from hpcserve.router.http1 import Request, ResponseHead
from hpcserve.router.pool import Leg
from hpcserve.routing import Load, Refusal, Route, choose

__all__ = ["Client", "Exchange"]

_MOST_HANDOFFS = 2
"""Prefill legs of one request; then one worker serves it whole."""
_MOST_WHOLE = 2
"""Workers that are tried for serving it whole."""
_CLIENTS_FAULT = frozenset({400, 404, 413, 422})
"""Statuses of an engine that speak of the request itself: passed on, no retry, nobody to blame."""
_OK = 200
_FORWARDED = (b"traceparent", b"tracestate")


class Client(Protocol):
    """The connection that a request came on."""

    def write(self, data: bytes) -> None:
        """Send bytes of the response."""

    def finish(self, *, keep_alive: bool) -> None:
        """The response is whole, or cannot be made whole: `keep_alive` False closes the connection."""


class Exchange:
    """One request from its complete body to the end of its answer."""

    __slots__ = (
        "_avoid",
        "_body",
        "_client",
        "_deadline_s",
        "_desk",
        "_facts",
        "_first_s",
        "_give_up_looking",
        "_handoffs",
        "_head",
        "_held",
        "_held_bytes",
        "_keep_alive",
        "_leg",
        "_load",
        "_looked_at_s",
        "_over",
        "_passing",
        "_payload",
        "_prefilled_s",
        "_reason",
        "_request",
        "_request_id",
        "_retries",
        "_route",
        "_stage",
        "_start",
        "_start_s",
        "_status",
        "_steps",
        "_tail",
        "_waited_s",
        "_whole",
        "_whole_tries",
    )

    def __init__(
        self,
        desk: Desk,
        client: Client,
        *,
        request: Request,
        body: Body,
        facts: RequestFacts,
        request_id: str,
        keep_alive: bool,
    ) -> None:
        self._desk = desk
        self._client = client
        self._request = request
        self._body = body
        self._facts = facts
        self._request_id = request_id
        self._keep_alive = keep_alive
        self._start_s = desk.now_s()
        self._first_s: float | None = None
        self._waited_s = 0.0
        self._avoid: set[str] = set()
        self._handoffs = 0
        self._whole_tries = 0
        self._whole = facts.whole
        self._retries = 0
        self._reason = ""
        self._route: Route | None = None
        self._leg: Leg | None = None
        self._load: Load | None = None
        self._stage: Literal["none", "prefill", "decode", "whole"] = "none"
        self._head: ResponseHead | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._payload: list[bytes] = []
        self._start: StreamStart | None = None
        self._passing = False
        self._prefilled_s = 0.0
        self._deadline_s: float | None = None
        self._looked_at_s: float | None = None
        self._give_up_looking = _nothing
        self._status = 0
        self._steps = 0
        self._tail = b""
        self._over = False

    def start(self) -> None:
        """Choose and send."""
        self._desk.metrics.in_flight += 1
        self._desk.timed.add(self)
        self._choose()

    # Choosing and sending.

    def _choose(self) -> None:
        desk = self._desk
        roster = desk.roster
        if not self._whole and self._handoffs >= _MOST_HANDOFFS:
            self._whole = self._reason
        chosen = choose(
            roster.table,
            roster.loads,
            roster.typical,
            model=self._facts.model,
            whole=self._whole,
            avoid=self._avoid,
            turn=desk.count,
        )
        if isinstance(chosen, Route) and chosen.prefill is None and self._whole_tries >= _MOST_WHOLE:
            chosen = Refusal(status=502, code="worker_failed", message="")
        if isinstance(chosen, Refusal):
            self._refuse(chosen)
            return
        self._route = chosen
        if chosen.prefill is not None:
            self._handoffs += 1
            self._send("prefill", prefill_body(self._body))
            return
        self._whole_tries += 1
        if self._whole_tries == 1 and roster.plan.mode == "disaggregated":
            desk.metrics.whole[chosen.reason] += 1
        self._send("whole", whole_body(self._body))

    def _send(self, stage: Literal["prefill", "decode", "whole"], body: bytes) -> None:
        desk, route = self._desk, self._route
        assert route is not None  # noqa: S101 - _choose has set it
        endpoint = route.prefill if stage == "prefill" else route.decode
        assert endpoint is not None  # noqa: S101 - _choose has looked
        self._stage = stage
        self._head = None
        self._held, self._held_bytes, self._payload = [], 0, []
        self._start = StreamStart() if self._facts.stream and stage != "prefill" else None
        load = self._load = desk.roster.loads.setdefault(endpoint.id, Load())
        load.in_flight += 1
        if stage == "decode":
            load.transfers += 1
        self._leg = Leg(endpoint, self, (self._head_for(endpoint.url[7:], len(body)), body), desk.now_s())
        desk.send(self._leg)

    def _head_for(self, authority: str, length: int) -> bytes:
        """A head from scratch: nothing that a client wrote shapes it but the target, the trace context and the id."""
        desk, headers = self._desk, self._request.headers
        again = f"-{self._retries}" if self._retries else ""
        lines = [
            b"POST %b HTTP/1.1" % self._request.target.partition(b"?")[0],
            b"host: " + authority.encode(),
            b"content-type: application/json",
            b"content-length: %d" % length,
            b"x-request-id: " + (self._request_id + again).encode(),
        ]
        if desk.engine_key:
            lines.append(b"authorization: Bearer " + desk.engine_key)
        lines += [b"%b: %b" % (name, headers[name]) for name in _FORWARDED if name in headers]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    # What comes from the leg.

    def leg_head(self, leg: Leg, head: ResponseHead) -> None:
        """Status and headers: kept until it is clear what they are worth."""
        if leg is not self._leg:
            return
        self._head = head
        if head.status != _OK:
            self._start = None

    def leg_data(self, leg: Leg, raw: bytes, payload: bytes) -> None:
        """Bytes of the body: passed on, or held back."""
        if leg is not self._leg:
            return
        if self._passing:
            self._steps += 1
            self._tail = raw[-6:] if len(raw) >= 6 else (self._tail + raw)[-6:]  # noqa: PLR2004 - see _break_stream
            self._client.write(payload if self._request.http10 else raw)
            return
        self._held_bytes += len(raw)
        if self._held_bytes > self._desk.limits.answer_bytes:
            self._fail_leg("answer_too_large", blame="nobody")
            return
        self._held.append(raw)
        self._payload.append(payload)
        if self._start is not None:
            verdict = self._start.feed(payload)
            if verdict is FirstToken.FAILED:
                self._fail_leg("error_event", blame="handoff")
            elif verdict is FirstToken.CAME and self._is_in_time():
                self._pass_on()

    def leg_ended(self, leg: Leg) -> None:
        """The response is whole."""
        if leg is not self._leg:
            return
        if self._passing:
            self._finish_stream()
            return
        head = self._head
        assert head is not None  # noqa: S101 - a response ends after its head
        if head.status in _CLIENTS_FAULT:
            self._answer_held("client_error")
        elif head.status != _OK:
            self._fail_leg(f"status_{head.status}", blame="handoff" if self._stage == "decode" else "worker")
        elif self._stage == "prefill":
            self._prefilled()
        elif self._start is not None:
            self._fail_leg("empty_stream", blame="handoff" if self._stage == "decode" else "worker")
        elif self._is_in_time():
            self._answer_held("ok")

    def leg_failed(self, leg: Leg, reason: str) -> None:
        """No connection, or it broke."""
        if leg is not self._leg:
            return
        self._desk.log.event(f"leg id={self._request_id} worker={leg.endpoint.id} stage={self._stage}: {reason}")
        if self._passing:
            self._desk.metrics.worker_failures[leg.endpoint.id] += 1
            self._desk.roster.unreachable(leg.endpoint)
            self._break_stream(leg)
        else:
            self._fail_leg("connection", blame="connection")

    # From one leg to the next.

    def _prefilled(self) -> None:
        desk, route, leg = self._desk, self._route, self._leg
        assert route is not None and route.prefill is not None and leg is not None  # noqa: S101, PT018 - a prefill leg
        now_s = desk.now_s()
        self._prefilled_s = now_s
        desk.roster.typical.saw_prefill((now_s - leg.sent_s) * 1000)
        desk.roster.answered_well(route.prefill)
        answer = read_answer(b"".join(self._payload))
        self._release(now_s)
        if answer.transfer is None:
            self._whole = answer.reason
            self._choose()
            return
        desk.metrics.handoffs += 1
        limit_s = desk.limits.handoff_s
        self._deadline_s = None if limit_s is None else now_s + limit_s
        self._send("decode", decode_body(self._body, answer.transfer))

    def _release(self, now_s: float) -> None:
        """The leg is over: give back what it counted."""
        leg, load = self._leg, self._load
        self._leg = self._load = None
        self._deadline_s = self._looked_at_s = None
        self._give_up_looking()
        self._give_up_looking = _nothing
        if leg is None or load is None:
            return
        load.in_flight -= 1
        if not self._passing:
            self._waited_s += now_s - leg.sent_s
            if self._stage == "decode":
                load.transfers -= 1

    def _fail_leg(self, reason: str, *, blame: Literal["connection", "worker", "handoff", "nobody"]) -> None:
        """The leg came to nothing, and the client has seen nothing: start over."""
        desk, leg, route = self._desk, self._leg, self._route
        assert leg is not None and route is not None  # noqa: S101, PT018 - a leg is under way
        stage = self._stage
        leg.abort()
        self._release(desk.now_s())
        self._reason = f"{stage}_{reason}"
        self._retries += 1
        desk.metrics.retries[self._reason] += 1
        desk.metrics.worker_failures[leg.endpoint.id] += 1
        desk.log.event(f"retry id={self._request_id} worker={leg.endpoint.id} reason={self._reason}")
        roster = desk.roster
        if blame == "connection":
            roster.unreachable(leg.endpoint)
            self._avoid.add(leg.endpoint.id)
        elif blame == "worker":
            roster.answered_badly(leg.endpoint)
            self._avoid.add(leg.endpoint.id)
        elif stage == "decode" and route.prefill is not None:
            roster.handoff_failed(route.prefill, route.decode)
        else:
            self._avoid.add(leg.endpoint.id)
        if stage == "decode":
            self._whole = self._reason  # its KV is in doubt: one worker makes all of it anew
        self._choose()

    # Time.

    def check_time(self, now_s: float) -> None:
        """The lease rule, for a decode leg that says nothing."""
        if self._deadline_s is None or now_s < self._deadline_s or self._passing:
            return
        if self._facts.stream or self._looked_at_s is not None:
            if self._looked_at_s is None or now_s >= self._looked_at_s + (self._desk.limits.handoff_s or 0.0):
                self._drop_late()
            return
        # An answer that is not streamed shows no first token. Its decode worker's counters tell whether it still waits.
        assert self._route is not None  # noqa: S101 - a decode leg is under way
        self._looked_at_s = now_s
        self._give_up_looking = self._desk.look_for_kv(self._route.decode, self._kv_looked_for)

    def _kv_looked_for(self, arrived: bool) -> None:
        self._give_up_looking = _nothing
        if arrived:
            self._deadline_s = self._looked_at_s = None
        else:
            self._drop_late()

    def _is_in_time(self) -> bool:
        """Whether the first token is early enough to be believed; if not, the leg is dropped.

        An answer that is not streamed counts as in time while the worker's counters are still being looked at: that is
        shorter than the half of the lease that is left.
        """
        if self._deadline_s is None or self._looked_at_s is not None or self._desk.now_s() <= self._deadline_s:
            return True
        limit_s = self._desk.limits.handoff_s or 0.0
        if not self._facts.stream and self._desk.now_s() <= self._deadline_s + min(_SLACK_S, limit_s / 2):
            return True  # the sweep would look in a moment
        self._drop_late()
        return False

    def _drop_late(self) -> None:
        """Drop a decode leg whose KV may have been pulled after its lease, and prefill again somewhere else."""
        desk, leg, route = self._desk, self._leg, self._route
        assert leg is not None and route is not None and route.prefill is not None  # noqa: S101, PT018 - a decode leg
        leg.abort()
        self._release(desk.now_s())
        desk.metrics.lease_drops += 1
        desk.metrics.retries["lease"] += 1
        desk.log.event(f"lease id={self._request_id} pair={route.prefill.id}>{route.decode.id}: first token too late")
        desk.roster.handoff_failed(route.prefill, route.decode)
        self._retries += 1
        self._reason = "lease"
        self._avoid.add(route.decode.id)
        self._choose()

    # To the client.

    def _head_to_client(self, head: ResponseHead, *, keep_alive: bool) -> bytes:
        return passed_head(
            head,
            route=self._route_name().encode(),
            request_id=self._request_id.encode(),
            keep_alive=keep_alive,
            http10=self._request.http10,
        )

    def _pass_on(self) -> None:
        """The first token is there: everything that was held back goes out in one write, then the rest as it comes."""
        head, leg, route, desk = self._head, self._leg, self._route, self._desk
        assert head is not None and leg is not None and route is not None  # noqa: S101, PT018 - a stream has begun
        self._saw_first_token(leg)
        if self._stage == "decode" and self._load is not None:
            self._load.transfers -= 1
            if route.prefill is not None:
                desk.roster.handoff_succeeded(route.prefill, route.decode)
        desk.roster.answered_well(leg.endpoint)
        self._passing = True
        self._deadline_s = None
        self._status = head.status
        if self._request.http10 or (head.length is None and not head.chunked):
            self._keep_alive = False
        body = b"".join(self._payload if self._request.http10 else self._held)
        self._tail = body[-6:]
        self._held, self._payload = [], []
        leg.raw_only = not self._request.http10
        self._client.write(self._head_to_client(head, keep_alive=self._keep_alive) + body)

    def _saw_first_token(self, leg: Leg) -> None:
        now_s = self._desk.now_s()
        self._first_s = now_s
        self._waited_s += now_s - leg.sent_s
        ttft_s = now_s - self._start_s
        self._desk.metrics.ttft["aggregated" if self._stage == "whole" else "disaggregated"].observe(ttft_s)
        self._desk.metrics.added.observe(max(ttft_s - self._waited_s, 0.0))

    def _answer_held(self, outcome: str) -> None:
        """A whole answer that was held back goes out in one write."""
        head, leg, route = self._head, self._leg, self._route
        assert head is not None and leg is not None and route is not None  # noqa: S101, PT018 - it has ended
        if outcome == "ok":
            self._saw_first_token(leg)
            self._waited_s -= self._desk.now_s() - leg.sent_s  # _release adds it
            self._desk.roster.answered_well(leg.endpoint)
            if self._stage == "decode" and route.prefill is not None:
                self._desk.roster.handoff_succeeded(route.prefill, route.decode)
        if head.length is None and (self._request.http10 or not head.chunked):
            self._keep_alive = False
        self._status = head.status
        body = b"".join(self._payload if self._request.http10 else self._held)
        data = self._head_to_client(head, keep_alive=self._keep_alive) + body
        self._end(outcome)
        self._client.write(data)
        self._client.finish(keep_alive=self._keep_alive)

    def _finish_stream(self) -> None:
        if self._first_s is not None and self._steps > 1:
            step_s = (self._desk.now_s() - self._first_s) / self._steps
            self._desk.roster.typical.saw_decode_step(step_s * 1000)
        self._end("ok")
        self._client.finish(keep_alive=self._keep_alive)

    def _break_stream(self, leg: Leg) -> None:
        """The stream broke: an error event if it broke between two events, and in any case no regular end."""
        self._end("broken")
        between = self._tail.endswith(b"\n\n") if self._request.http10 else self._tail.endswith(b"\n\n\r\n")
        if between and leg.at_boundary:
            message = "The worker that was answering is lost; the answer is incomplete."
            self._client.write(error_event(message, code="worker_lost", chunked=not self._request.http10))
        self._client.finish(keep_alive=False)

    def _refuse(self, refusal: Refusal) -> None:
        if self._retries:
            message = f"No worker could answer this request ({self._reason})."
            refusal = Refusal(
                status=502 if refusal.status != 404 else 404,  # noqa: PLR2004 - HTTP
                code="worker_failed",
                message=message,
                retry_after_s=refusal.retry_after_s,
            )
        self._status = refusal.status
        self._end(refusal.code)
        self._client.write(error_answer(refusal, keep_alive=self._keep_alive, request_id=self._request_id))
        self._client.finish(keep_alive=self._keep_alive)

    def client_gone(self) -> None:
        """The client left: close the leg, so that its engine aborts; nobody is to blame."""
        if self._over:
            return
        self._desk.metrics.abandoned[self._stage] += 1
        leg = self._leg
        self._end("abandoned")
        if leg is not None:
            leg.abort()

    def pause(self, *, paused: bool) -> None:
        """The client takes bytes slower than they come, or takes them again."""
        if self._leg is not None:
            self._leg.pause(paused=paused)

    def _end(self, outcome: str) -> None:
        desk = self._desk
        now_s = desk.now_s()
        self._release(now_s)
        self._over = True
        desk.timed.discard(self)
        metrics = desk.metrics
        metrics.in_flight -= 1
        kind = "none" if self._route is None else "aggregated" if self._route.prefill is None else "disaggregated"
        metrics.requests[kind, outcome] += 1
        desk.log.request(
            request_id=self._request_id,
            target=self._request.target.decode("latin-1"),
            route=self._route_name(),
            status=self._status,
            ttft_s=None if self._first_s is None else self._first_s - self._start_s,
            total_s=now_s - self._start_s,
            end=outcome,
        )

    def _route_name(self) -> str:
        route = self._route
        if route is None:
            return "-"
        return route.decode.id if route.prefill is None else f"{route.prefill.id}>{route.decode.id}"


_SLACK_S = 1.0
"""The sweep that looks comes a few times a second."""


def _nothing() -> None:
    """Nothing is being looked for."""
