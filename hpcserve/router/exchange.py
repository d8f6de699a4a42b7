"""The life of one request: prefill leg, decode leg, pass through; or one leg for both; and what happens when one fails.

Callbacks only. Until the first token (of a stream) or the whole answer is there, the client has seen nothing and the
request can start over; after it, what the engine sends is passed on untouched, and a stream that breaks ends with an
error event.
"""

from math import inf
from typing import Literal

from hpcserve.engines.handoff import Body, RequestFacts, decode_body, prefill_body, read_answer, whole_body
from hpcserve.nouns import Endpoint
from hpcserve.router.account import Account
from hpcserve.router.answers import engine_head, traced_lines
from hpcserve.router.desk import Desk
from hpcserve.router.first_token import FirstToken
from hpcserve.router.held import Held
from hpcserve.router.kv_prompt import Kind
from hpcserve.router.lease import LeaseWatch, longest_s
from hpcserve.router.pool import Leg
from hpcserve.router.record import Blame, Record
from hpcserve.router.reply import Client, Reply
from hpcserve.router.request import Request
from hpcserve.router.response import ResponseHead
from hpcserve.routing import Demand, Refusal, Route, choose

__all__ = ["Exchange"]

_MOST_HANDOFFS = 2
"""Prefill legs of one request; then one worker serves it whole."""
_MOST_WHOLE = 2
"""Workers that may fail to serve it whole; those that were not reached or stood still under everything do not count."""
_CLIENTS_FAULT = frozenset({400, 404, 413, 422})
"""Statuses of an engine that speak of the request itself: passed on, no retry, nobody to blame."""
_OK = 200
_NOT_FOUND = 404

_Stage = Literal["prefill", "decode", "whole"]
_NOBODY: frozenset[str] = frozenset()


class Exchange:
    """One request from its complete body to the end of its answer.

    What it is counted for stands in its `Account`, what it shows and what is learnt of it in its `Record`.
    """

    # What most requests never change stands here once, and not in each of them.
    _avoid = _NOBODY
    _late = _NOBODY
    _handoffs = 0
    _whole_tries = 0
    _whole_failures = 0
    _over = False
    _client_full = False
    """The client takes bytes slower than they come."""
    # The leg that is under way, and what has come of its response.
    _leg: Leg | None = None
    _stage: _Stage = "whole"
    _prefilled_s = 0.0
    """When the prefill had answered; earlier where the router stood still and read it late."""
    _kept_until_s = inf
    """Until when its KV is surely kept."""
    _lease: LeaseWatch | None = None
    _held: Held | None = None

    def __init__(
        self,
        desk: Desk,
        client: Client,
        *,
        request: Request,
        path: bytes,
        body: Body,
        facts: RequestFacts,
        request_id: str,
        tenant: str,
        keep_alive: bool,
    ) -> None:
        """`path`: the request's, without its query; `tenant`: empty for the job's own key."""
        self._desk = desk
        self._reply = Reply(client=client, http10=request.http10, request_id=request_id, keep_alive=keep_alive)
        self._body = body
        self._stream = facts.stream
        self._model = facts.model
        self._whole = facts.whole
        roster = desk.roster
        self._record = Record(
            desk=desk,
            facts=facts,
            path=path,
            request_id=request_id,
            tenant=tenant,
            traced=traced_lines(request),
            start_s=desk.now_s(),
            tokens=roster.typical.tokens_of(facts.body_bytes, longest=roster.longest_prompt),
        )
        self._account = Account(desk)

    def start(self, kind: Kind) -> None:
        """Choose and send. `kind`: what its body is."""
        desk = self._desk
        desk.metrics.in_flight += 1
        desk.timed.add(self)
        if desk.kv is not None:
            self._record.read_prompt(desk.kv, kind, self._body)
        self._choose()
        if desk.preferences.borrow_when_cheaper:
            self._record.asked()

    # Choosing and sending.

    def _choose(self) -> None:
        record = self._record
        if not self._whole and self._handoffs >= _MOST_HANDOFFS:
            self._whole = record.reason
        chosen = self._chosen(self._avoid | self._late if self._late else self._avoid, whole=self._whole)
        if isinstance(chosen, Refusal) and self._late:
            chosen = self._chosen(self._avoid, whole=self._whole or record.reason)  # busy is better than nobody
        record.chosen(chosen)
        if isinstance(chosen, Refusal):
            self._refuse(chosen)
        elif chosen.prefill is not None:
            record.goes(chosen)
            self._begin_handoff(chosen, chosen.prefill)
        elif self._whole_failures >= _MOST_WHOLE:
            self._refuse(Refusal(status=502, code="worker_failed", message=""))
        else:
            record.goes(chosen)
            self._whole_tries += 1
            if self._whole_tries == 1 and self._desk.roster.plan.mode == "disaggregated":
                self._desk.metrics.whole[chosen.reason] += 1
            self._account.give_back_place()  # it waited for a link that nothing of it will come by
            self._send("whole", chosen.decode, whole_body(self._body))

    def _chosen(self, avoid: frozenset[str], *, whole: str) -> Route | Refusal:
        desk, record = self._desk, self._record
        roster = desk.roster
        return choose(
            roster.table,
            roster.loads,
            roster.typical,
            model=self._model,
            whole=whole,
            avoid=avoid,
            turn=desk.count,
            demand=Demand(record.tokens, roster.typical.answer_tokens, record.overlap),
            preferences=desk.preferences,
        )

    def _begin_handoff(self, route: Route, prefill: Endpoint) -> None:
        """Send the prefill leg, once there is a place on the link that its KV will come by."""
        desk, account = self._desk, self._account
        if desk.slots is not None and not account.has_place(desk.slots, route.decode, self._granted):
            return
        self._handoffs += 1
        account.promise(route.decode)
        desk.roster.handed(route)
        self._send("prefill", prefill, prefill_body(self._body))

    def _granted(self) -> None:
        """The place that was waited for is free: what is best may have changed meanwhile."""
        self._account.place_granted()
        self._choose()

    def _send(self, stage: _Stage, endpoint: Endpoint, body: bytes) -> None:
        desk, record = self._desk, self._record
        self._account.leg_sent(
            endpoint,
            computes=0.0 if stage == "decode" else record.computes(endpoint),
            keeps=0.0 if stage == "prefill" else record.tokens + desk.roster.typical.answer_tokens,
            pulls=stage == "decode",
        )
        pool = desk.pools.of(endpoint)
        head = engine_head(
            pool.lines(record.path, desk.engine_key),
            length=len(body),
            request_id=f"{record.request_id}-{record.retries}" if record.retries else record.request_id,
            traced=record.traced,
        )
        self._stage, self._held = stage, None
        self._leg = leg = Leg(endpoint, self, (head, body), desk.now_s())
        if record.prompt is not None and desk.kv is not None:
            desk.kv.sent(record.prompt, endpoint.id)
        pool.send(leg)

    # What comes from the leg.

    def leg_whole(self, leg: Leg, head: ResponseHead, body: bytes) -> None:
        """All of the response at once: most answers that are not streamed."""
        if self._leg is not leg:
            return
        stage = self._stage
        if head.status != _OK or len(body) > self._desk.limits.answer_bytes:
            pass
        elif stage == "prefill":
            self._prefilled(leg, body)
            return
        elif not self._stream and self._in_time():
            self._answer(leg, head, body, "ok")
            return
        self.leg_head(leg, head)
        if body:
            self.leg_data(leg, body, body)
        self.leg_ended(leg)

    def leg_head(self, leg: Leg, head: ResponseHead) -> None:
        """Status and headers: kept until it is clear what they are worth."""
        if self._leg is leg:
            self._held = Held(head, stream=self._stream and self._stage != "prefill" and head.status == _OK)

    def leg_data(self, leg: Leg, raw: bytes, payload: bytes) -> None:
        """Bytes of the body: passed on, or held back."""
        if self._leg is not leg:
            return
        if self._reply.begun:
            self._reply.more(raw, payload)
            return
        held = self._held
        if held is None:
            return
        verdict = held.take(raw, payload)
        if held.size > self._desk.limits.answer_bytes:
            self._fail(leg, "answer_too_large", blame="nobody")
        elif verdict is FirstToken.FAILED:
            self._fail(leg, "error_event", blame=self._handoff_or("nobody"))
        elif verdict is FirstToken.CAME:
            if self._in_time():
                self._pass_on(leg, held)
            else:
                self._drop_late()

    def leg_ended(self, leg: Leg) -> None:
        """The response is whole."""
        if self._leg is not leg:
            return
        held = self._held
        if self._reply.begun:
            self._record.stream_ended(self._reply.pieces)
            self._end("ok")
            self._reply.end()
        elif held is None:
            self._fail(leg, "no_head", blame="worker")
        elif held.head.status in _CLIENTS_FAULT:
            self._answer(leg, held.head, held.body(framed=not self._reply.http10), "client_error")
        elif held.head.status != _OK:
            self._fail(leg, f"status_{held.head.status}", blame=self._handoff_or("worker"))
        elif self._stage == "prefill":
            self._prefilled(leg, held.body(framed=False))
        elif held.awaits_token:
            self._fail(leg, "empty_stream", blame=self._handoff_or("worker"))
        elif self._in_time():
            self._answer(leg, held.head, held.body(framed=not self._reply.http10), "ok")
        else:
            self._drop_late()

    def _handoff_or(self, blame: Blame) -> Blame:
        """Who is to blame for a bad answer: where the leg was to have its KV from elsewhere, that."""
        return "handoff" if self._stage == "decode" else blame

    def leg_failed(self, leg: Leg, reason: str) -> None:
        """No connection, or it broke."""
        if self._leg is not leg:
            return
        desk, worker = self._desk, leg.endpoint
        desk.log.event(f"leg id={self._record.request_id} worker={worker.id} stage={self._stage}: {reason}")
        if self._reply.begun:
            desk.metrics.worker_failures[worker.id] += 1
            desk.roster.unreachable(worker)
            self._end("broken")
            self._reply.break_off(leg)
        else:
            self._fail(leg, "connection", blame="connection", tried=leg.connection is not None and not leg.given_up)

    def check_time(self, now_s: float) -> None:
        """The lease rule, for a decode leg that says nothing; the stall rule, for a stream that waits far too long.

        And whether the prefill worker began anew: another engine may have its address now.
        """
        leg, load, route = self._leg, self._account.load, self._record.route
        if leg is None or load is None or self._stage != "decode" or self._reply.begun:
            return
        if route is not None and route.prefill is not None and self._desk.roster.is_replaced(route.prefill):
            self._give_up(leg)
            self._record.prefill_replaced(route.prefill)
            self._choose()
            return
        if self._stream and route is not None and self._desk.limits.handoff_s is not None:
            estimate, waited_s = route.estimate, now_s - leg.sent_s
            if waited_s > load.stalls_after_s((estimate.transfer_ms + estimate.room_ms) / 1000):
                load.saw_first_token(waited_s)
                self._drop_late("stalled")
                return
        if self._lease is None:
            self._lease = LeaseWatch(
                self._desk, decode=leg.endpoint, stream=self._stream, late=self._drop_late, since_s=self._prefilled_s
            )
        self._lease.check(now_s)

    def _in_time(self) -> bool:
        """Whether what comes now may be believed. Most answers come before the first look for a late one."""
        if self._lease is not None:
            return self._lease.in_time()
        return self._stage != "decode" or self._desk.now_s() <= self._kept_until_s

    # From one leg to the next.

    def _prefilled(self, leg: Leg, answer_text: bytes) -> None:
        desk, record, account = self._desk, self._record, self._account
        now_s = desk.now_s()
        self._prefilled_s = since_s = max(desk.turns.there_since_s(now_s), leg.sent_s)
        limit_s = desk.limits.handoff_s
        if limit_s is not None:
            self._kept_until_s = since_s + longest_s(limit_s, stream=self._stream)
        answer = read_answer(answer_text)
        record.prefilled(leg, answer, now_s=now_s, tokens=account.ahead)
        self._leg = None
        account.leg_over()
        route = record.route
        if answer.transfer is None or route is None:
            account.give_back_place()
            self._whole = answer.reason
            self._choose()
        elif now_s <= self._kept_until_s:
            desk.metrics.handoffs += 1
            self._send("decode", route.decode, decode_body(self._body, answer.transfer))
        else:
            account.give_back_place()
            record.prefill_late(leg.endpoint)
            self._choose()

    def _let_go(self) -> None:
        """Nothing more of the leg is wanted."""
        self._leg = None
        if self._lease is not None:
            self._lease.stop()
            self._lease = None  # they know each other: left so, only the collector would free them

    def _give_up(self, leg: Leg) -> None:
        """The leg comes to nothing, and the client has seen nothing."""
        leg.abort()
        self._let_go()
        self._account.leg_over()
        self._account.give_back_place()
        self._record.waited_s += self._desk.now_s() - leg.sent_s

    def _fail(self, leg: Leg, what: str, *, blame: Blame, tried: bool = True) -> None:
        """The leg came to nothing, and the client has seen nothing: start over. `tried`: it has used up a try."""
        self._give_up(leg)
        reason = f"{self._stage}_{what}"
        self._whole_failures += tried and self._stage == "whole"
        if self._stage == "decode":
            self._whole = reason  # its KV is in doubt: one worker makes all of it anew
        if blame != "handoff":
            self._avoid |= {leg.endpoint.id}
        self._record.leg_failed(leg.endpoint, reason, blame=blame)
        self._choose()

    def _drop_late(self, why: Literal["lease", "stalled"] = "lease") -> None:
        """Drop a decode leg whose KV came after its lease, perhaps, or does not come; prefill again elsewhere."""
        leg = self._leg
        if leg is None:
            return
        self._give_up(leg)
        self._late |= {leg.endpoint.id}
        self._record.decode_late(why)
        self._choose()

    # To the client.

    def _pass_on(self, leg: Leg, held: Held) -> None:
        """The first token is there: what was held back goes out, then the rest as it comes."""
        account, record = self._account, self._record
        record.first_token(leg, account.load)
        account.first_token()
        if self._lease is not None:
            self._lease.stop()
        self._held = None
        self._reply.begin(held, leg, route=record.route_name)
        if self._client_full:
            leg.pause(paused=True)

    def _answer(self, leg: Leg, head: ResponseHead, body: bytes, outcome: str) -> None:
        """A whole answer that was held back."""
        record, reply = self._record, self._reply
        if outcome == "ok":
            record.first_token(leg, self._account.load)
        reply.status = head.status
        self._end(outcome)
        reply.whole(head, body, route=record.route_name)

    def _refuse(self, refusal: Refusal) -> None:
        record = self._record
        if record.retries and refusal.status != _NOT_FOUND:
            refusal = Refusal(
                status=502,
                code="worker_failed",
                message=f"No worker could answer this request ({record.reason}).",
                retry_after_s=refusal.retry_after_s,
            )
        self._reply.status = refusal.status
        self._end(refusal.code)
        self._reply.error(refusal)

    def client_gone(self) -> None:
        """The client left: close the leg, so that its engine aborts; nobody is to blame."""
        if self._over:
            return
        leg = self._leg
        self._desk.metrics.abandoned["none" if leg is None else self._stage] += 1
        self._end("abandoned")
        if leg is not None:
            leg.abort()

    def pause(self, *, paused: bool) -> None:
        """The client takes bytes slower than they come, or takes them again; a leg that it has nothing of runs on."""
        self._client_full = paused
        if self._leg is not None and self._reply.begun:
            self._leg.pause(paused=paused)

    def _end(self, outcome: str) -> None:
        desk = self._desk
        self._let_go()
        self._over = True
        self._account.close()
        desk.timed.discard(self)
        desk.metrics.in_flight -= 1
        self._record.ended(outcome, status=self._reply.status)
