"""The life of one request: prefill leg, decode leg, pass through; or one leg for both; and what happens when one fails.

Callbacks only. Until the first token (of a stream) or the whole answer is there, the client has seen nothing and the
request can start over; after it, what the engine sends is passed on untouched, and a stream that breaks ends with an
error event.
"""

from dataclasses import dataclass
from typing import Literal

from hpcserve.engines.handoff import Body, RequestFacts, decode_body, prefill_body, read_answer, whole_body
from hpcserve.nouns import Endpoint
from hpcserve.router.answers import engine_head
from hpcserve.router.desk import Desk
from hpcserve.router.first_token import FirstToken
from hpcserve.router.held import Held
from hpcserve.router.http1 import Request, ResponseHead
from hpcserve.router.lease import LeaseWatch
from hpcserve.router.pool import Leg
from hpcserve.router.reply import Client, Reply
from hpcserve.routing import Load, Refusal, Route, choose

__all__ = ["Exchange"]

_MOST_HANDOFFS = 2
"""Prefill legs of one request; then one worker serves it whole."""
_MOST_WHOLE = 2
"""Workers that are tried for serving it whole."""
_CLIENTS_FAULT = frozenset({400, 404, 413, 422})
"""Statuses of an engine that speak of the request itself: passed on, no retry, nobody to blame."""
_OK = 200
_NOT_FOUND = 404

_Stage = Literal["prefill", "decode", "whole"]
_Blame = Literal["connection", "worker", "handoff", "nobody"]


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """The leg that is under way."""

    stage: _Stage
    route: Route
    leg: Leg
    load: Load
    held: Held
    lease: LeaseWatch | None = None


class Exchange:
    """One request from its complete body to the end of its answer."""

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
        self._reply = Reply(client, request, request_id=request_id, keep_alive=keep_alive)
        self._request = request
        self._body = body
        self._facts = facts
        self._request_id = request_id
        self._start_s = desk.now_s()
        self._first_s: float | None = None
        self._waited_s = 0.0
        self._avoid: set[str] = set()
        self._late: set[str] = set()
        self._handoffs = 0
        self._whole_tries = 0
        self._whole = facts.whole
        self._retries = 0
        self._reason = ""
        self._route: Route | None = None
        self._attempt: _Attempt | None = None
        self._over = False

    def start(self) -> None:
        """Choose and send."""
        self._desk.metrics.in_flight += 1
        self._desk.timed.add(self)
        self._choose()

    # Choosing and sending.

    def _choose(self) -> None:
        roster = self._desk.roster
        if not self._whole and self._handoffs >= _MOST_HANDOFFS:
            self._whole = self._reason
        chosen = self._chosen(self._avoid | self._late, whole=self._whole)
        if isinstance(chosen, Refusal) and self._late:
            chosen = self._chosen(self._avoid, whole=self._whole or self._reason)  # busy is better than nobody
        if isinstance(chosen, Refusal):
            self._refuse(chosen)
        elif chosen.prefill is not None:
            self._route = chosen
            self._handoffs += 1
            self._send("prefill", chosen, chosen.prefill, prefill_body(self._body))
        elif self._whole_tries >= _MOST_WHOLE:
            self._refuse(Refusal(status=502, code="worker_failed", message=""))
        else:
            self._route = chosen
            self._whole_tries += 1
            if self._whole_tries == 1 and roster.plan.mode == "disaggregated":
                self._desk.metrics.whole[chosen.reason] += 1
            self._send("whole", chosen, chosen.decode, whole_body(self._body))

    def _chosen(self, avoid: set[str], *, whole: str) -> Route | Refusal:
        roster = self._desk.roster
        return choose(
            roster.table,
            roster.loads,
            roster.typical,
            model=self._facts.model,
            whole=whole,
            avoid=avoid,
            turn=self._desk.count,
        )

    def _send(self, stage: _Stage, route: Route, endpoint: Endpoint, body: bytes) -> None:
        desk = self._desk
        load = desk.roster.loads.setdefault(endpoint.id, Load())
        load.in_flight += 1
        head = engine_head(
            self._request,
            authority=endpoint.url.removeprefix("http://"),
            length=len(body),
            request_id=f"{self._request_id}-{self._retries}" if self._retries else self._request_id,
            key=desk.engine_key,
        )
        leg = Leg(endpoint, self, (head, body), desk.now_s())
        held = Held(stream=self._facts.stream and stage != "prefill")
        self._attempt = attempt = _Attempt(stage=stage, route=route, leg=leg, load=load, held=held)
        if stage == "decode":
            load.transfers += 1
            attempt.lease = LeaseWatch(
                desk, decode=endpoint, stream=self._facts.stream, late=lambda: self._drop_late(attempt)
            )
        desk.send(leg)

    # What comes from the leg.

    def leg_head(self, leg: Leg, head: ResponseHead) -> None:
        """Status and headers: kept until it is clear what they are worth."""
        attempt = self._attempt
        if attempt is not None and attempt.leg is leg:
            attempt.held.take_head(head)

    def leg_data(self, leg: Leg, raw: bytes, payload: bytes) -> None:
        """Bytes of the body: passed on, or held back."""
        attempt = self._attempt
        if attempt is None or attempt.leg is not leg:
            return
        if self._reply.begun:
            self._reply.more(raw, payload)
            return
        verdict = attempt.held.take(raw, payload)
        if attempt.held.size > self._desk.limits.answer_bytes:
            self._fail(attempt, "answer_too_large", blame="nobody")
        elif verdict is FirstToken.FAILED:
            self._fail(attempt, "error_event", blame="handoff")
        elif verdict is FirstToken.CAME:
            if attempt.lease is None or attempt.lease.in_time():
                self._pass_on(attempt)
            else:
                self._drop_late(attempt)

    def leg_ended(self, leg: Leg) -> None:
        """The response is whole."""
        attempt = self._attempt
        if attempt is None or attempt.leg is not leg:
            return
        head = attempt.held.head
        if self._reply.begun:
            self._finish_stream()
        elif head is None:
            self._fail(attempt, "no_head", blame="worker")
        elif head.status in _CLIENTS_FAULT:
            self._answer(attempt, head, "client_error")
        elif head.status != _OK:
            self._fail(attempt, f"status_{head.status}", blame="handoff" if attempt.stage == "decode" else "worker")
        elif attempt.stage == "prefill":
            self._prefilled(attempt)
        elif attempt.held.is_stream:
            self._fail(attempt, "empty_stream", blame="handoff" if attempt.stage == "decode" else "worker")
        elif attempt.lease is None or attempt.lease.in_time():
            self._answer(attempt, head, "ok")
        else:
            self._drop_late(attempt)

    def leg_failed(self, leg: Leg, reason: str) -> None:
        """No connection, or it broke."""
        attempt = self._attempt
        if attempt is None or attempt.leg is not leg:
            return
        desk = self._desk
        desk.log.event(f"leg id={self._request_id} worker={leg.endpoint.id} stage={attempt.stage}: {reason}")
        if self._reply.begun:
            desk.metrics.worker_failures[leg.endpoint.id] += 1
            desk.roster.unreachable(leg.endpoint)
            self._end("broken")
            self._reply.break_off(leg)
        else:
            self._fail(attempt, "connection", blame="connection")

    def check_time(self, now_s: float) -> None:
        """The lease rule, for a decode leg that says nothing."""
        if self._attempt is not None and self._attempt.lease is not None:
            self._attempt.lease.check(now_s)

    # From one leg to the next.

    def _prefilled(self, attempt: _Attempt) -> None:
        desk, leg = self._desk, attempt.leg
        desk.roster.typical.saw_prefill((desk.now_s() - leg.sent_s) * 1000)
        desk.roster.answered_well(leg.endpoint)
        answer = read_answer(attempt.held.payload())
        self._release()
        if answer.transfer is None:
            self._whole = answer.reason
            self._choose()
            return
        desk.metrics.handoffs += 1
        self._send("decode", attempt.route, attempt.route.decode, decode_body(self._body, answer.transfer))

    def _release(self) -> None:
        """The leg is over: give back what it counted."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        attempt.load.in_flight -= 1
        lease, attempt.lease = attempt.lease, None  # they know each other: left so, only the collector would free them
        if lease is not None:
            lease.stop()
        if not self._reply.begun:
            self._waited_s += self._desk.now_s() - attempt.leg.sent_s
            attempt.load.transfers -= attempt.stage == "decode"

    def _fail(self, attempt: _Attempt, what: str, *, blame: _Blame) -> None:
        """The leg came to nothing, and the client has seen nothing: start over."""
        desk, route, worker = self._desk, attempt.route, attempt.leg.endpoint
        attempt.leg.abort()
        self._release()
        self._reason = f"{attempt.stage}_{what}"
        desk.metrics.worker_failures[worker.id] += 1
        desk.log.event(f"retry id={self._request_id} worker={worker.id} reason={self._reason}")
        if attempt.stage == "decode":
            self._whole = self._reason  # its KV is in doubt: one worker makes all of it anew
        if attempt.stage == "decode" and blame == "handoff" and route.prefill is not None:
            desk.roster.handoff_failed(route.prefill, route.decode, now_s=desk.now_s())
        else:
            self._avoid.add(worker.id)
            if blame == "connection":
                desk.roster.unreachable(worker)
            elif blame == "worker":
                desk.roster.answered_badly(worker)
        self._again(self._reason)

    def _drop_late(self, attempt: _Attempt) -> None:
        """Drop a decode leg whose KV may have been pulled after its lease, and prefill again for somebody else."""
        desk, route = self._desk, attempt.route
        attempt.leg.abort()
        self._release()
        desk.metrics.lease_drops += 1
        self._reason = "decode_late"
        self._late.add(route.decode.id)
        if route.prefill is not None:
            desk.log.event(f"lease id={self._request_id} pair={self._route_name()}: first token too late")
            desk.roster.handoff_failed(route.prefill, route.decode, now_s=desk.now_s())
        self._again("lease")

    def _again(self, reason: str) -> None:
        self._retries += 1
        self._desk.metrics.retries[reason] += 1
        self._choose()

    # To the client.

    def _pass_on(self, attempt: _Attempt) -> None:
        """The first token is there: what was held back goes out, then the rest as it comes."""
        head, held = attempt.held.head, attempt.held
        if head is None:
            return
        self._saw_first_token(attempt)
        attempt.load.transfers -= attempt.stage == "decode"
        if attempt.lease is not None:
            attempt.lease.stop()
        attempt.held = Held(stream=False)
        self._reply.begin(head, held, attempt.leg, route=self._route_name())

    def _saw_first_token(self, attempt: _Attempt) -> None:
        desk, route = self._desk, attempt.route
        now_s = self._first_s = desk.now_s()
        ttft_s = now_s - self._start_s
        waited_s = self._waited_s + now_s - attempt.leg.sent_s
        desk.metrics.ttft["aggregated" if attempt.stage == "whole" else "disaggregated"].observe(ttft_s)
        desk.metrics.added.observe(max(ttft_s - waited_s, 0.0))
        desk.roster.answered_well(attempt.leg.endpoint)
        if attempt.stage == "decode" and route.prefill is not None:
            desk.roster.handoff_succeeded(route.prefill, route.decode)

    def _answer(self, attempt: _Attempt, head: ResponseHead, outcome: str) -> None:
        """A whole answer that was held back."""
        if outcome == "ok":
            self._saw_first_token(attempt)
        self._reply.status = head.status
        self._end(outcome)
        self._reply.whole(head, attempt.held, route=self._route_name())

    def _finish_stream(self) -> None:
        if self._first_s is not None and self._reply.pieces > 1:
            step_s = (self._desk.now_s() - self._first_s) / self._reply.pieces
            self._desk.roster.typical.saw_decode_step(step_s * 1000)
        self._end("ok")
        self._reply.end()

    def _refuse(self, refusal: Refusal) -> None:
        if self._retries and refusal.status != _NOT_FOUND:
            refusal = Refusal(
                status=502,
                code="worker_failed",
                message=f"No worker could answer this request ({self._reason}).",
                retry_after_s=refusal.retry_after_s,
            )
        self._reply.status = refusal.status
        self._end(refusal.code)
        self._reply.error(refusal)

    def client_gone(self) -> None:
        """The client left: close the leg, so that its engine aborts; nobody is to blame."""
        if self._over:
            return
        attempt = self._attempt
        self._desk.metrics.abandoned["none" if attempt is None else attempt.stage] += 1
        self._end("abandoned")
        if attempt is not None:
            attempt.leg.abort()

    def pause(self, *, paused: bool) -> None:
        """The client takes bytes slower than they come, or takes them again."""
        if self._attempt is not None:
            self._attempt.leg.pause(paused=paused)

    def _end(self, outcome: str) -> None:
        desk, route = self._desk, self._route
        self._release()
        self._over = True
        desk.timed.discard(self)
        desk.metrics.in_flight -= 1
        kind = "none" if route is None else "aggregated" if route.prefill is None else "disaggregated"
        desk.metrics.requests[kind, outcome] += 1
        desk.log.request(
            request_id=self._request_id,
            target=self._request.target.partition(b"?")[0].decode("latin-1"),  # some put a key into the query
            route=self._route_name(),
            status=self._reply.status,
            ttft_s=None if self._first_s is None else self._first_s - self._start_s,
            total_s=desk.now_s() - self._start_s,
            end=outcome,
        )

    def _route_name(self) -> str:
        route = self._route
        if route is None:
            return "-"
        return route.decode.id if route.prefill is None else f"{route.prefill.id}>{route.decode.id}"
