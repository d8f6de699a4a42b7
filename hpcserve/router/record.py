"""What is known of one request, and who is told of its course: metrics, log, and all that later choices go by."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from hpcserve.engines.handoff import Answer, Body, RequestFacts
from hpcserve.nouns import Endpoint
from hpcserve.router.access_log import Served
from hpcserve.router.answers import traceparent_of
from hpcserve.router.decisions import Decision
from hpcserve.router.desk import Desk
from hpcserve.router.kv_knowledge import KvKnowledge
from hpcserve.router.kv_prompt import Kind, Prompt
from hpcserve.router.pool import Leg
from hpcserve.routing import Load, Refusal, Route

__all__ = ["Blame", "Record"]

Blame = Literal["connection", "worker", "handoff", "nobody"]
"""Whom a leg that failed speaks against."""


class Record(msgspec.Struct, kw_only=True):
    """One request from its complete body to its end."""

    desk: Desk
    facts: RequestFacts
    path: bytes
    """Without its query: some put a key there."""
    request_id: str
    tenant: str
    """Empty for the job's own key."""
    traced: bytes
    """The lines of its head that are passed on to engines."""
    start_s: float
    tokens: float
    """Of its prompt; about, where they are not known."""
    prompt: Prompt | None = None
    """What is known of its KV."""
    overlap: Mapping[str, int] = msgspec.field(default_factory=dict)
    """Tokens of it whose KV a worker should have."""
    route: Route | None = None
    route_name: str = "-"
    retries: int = 0
    reason: str = ""
    """Why it was last sent anew."""
    waited_s: float = 0.0
    """For those of its legs that are over and brought no first token."""
    first_s: float | None = None

    # Choosing and sending.

    def read_prompt(self, kv: KvKnowledge, kind: Kind, body: Body) -> None:
        """Look up who should have its KV."""
        self.prompt = prompt = kv.read(kind, body.fields)
        self.overlap = kv.overlaps(prompt)
        if prompt.tokens is not None:
            self.tokens = float(prompt.tokens)

    def chosen(self, chosen: Route | Refusal) -> None:
        """Note one choice."""
        held = 0
        if self.overlap and isinstance(chosen, Route):
            held = self.overlap.get((chosen.prefill or chosen.decode).id, 0)
        desk = self.desk
        desk.decisions.append(Decision(desk.now_s(), self.request_id, self.tokens, held, chosen))

    def goes(self, route: Route) -> None:
        """It is sent by this route."""
        self.route = route
        prefill = route.prefill
        self.route_name = route.decode.id if prefill is None else f"{prefill.id}>{route.decode.id}"

    def asked(self) -> None:
        """Take in what the workers are asked for by it: the prompt tokens to be computed where it was sent first."""
        route = self.route
        if route is not None:  # nobody computes what was refused
            tokens = self._uncached(route.prefill or route.decode)
            self.desk.roster.typical.saw_request(at_ms=self.start_s * 1000, tokens=tokens)

    def _uncached(self, worker: Endpoint) -> float:
        return max(self.tokens - self.overlap.get(worker.id, 0), 1.0)

    def computes(self, worker: Endpoint) -> float:
        """A leg with its prompt goes to this worker: the prompt tokens that it has to compute there."""
        tokens, metrics = self.tokens, self.desk.metrics
        computes = self._uncached(worker)
        metrics.prompt_tokens += tokens
        metrics.predicted_hit_tokens += tokens - computes
        return computes

    # What came of a leg.

    def prefilled(self, leg: Leg, answer: Answer, *, now_s: float, tokens: float) -> None:
        """A prefill worker has answered; of `tokens`, with those that it had to compute first."""
        desk, route, prompt = self.desk, self.route, self.prompt
        typical, leg_s = desk.roster.typical, now_s - leg.sent_s
        self.waited_s += leg_s
        typical.saw_prefill(leg_s * 1000, tokens=tokens)
        if route is not None:
            desk.metrics.queue["prefill"].observe(max(leg_s - route.estimate.prefill_ms / 1000, 0.0))
        desk.roster.answered_well(leg.endpoint)
        if prompt is not None and desk.kv is not None:
            desk.kv.answered(prompt, leg.endpoint.id)
            desk.kv.saw_length(prompt, answer.tokens or 0)
        if answer.tokens:
            typical.saw_prompt(body_bytes=self.facts.body_bytes, tokens=answer.tokens)

    def first_token(self, leg: Leg, load: Load | None) -> None:
        """The first token of a stream is there, or a whole answer. `load`: of the worker that sent it."""
        desk, route = self.desk, self.route
        now_s = self.first_s = desk.now_s()
        leg_s = now_s - leg.sent_s
        ttft_s = now_s - self.start_s
        prefill = None if route is None else route.prefill
        desk.metrics.ttft["aggregated" if prefill is None else "disaggregated"].observe(ttft_s)
        desk.metrics.added.observe(max(ttft_s - self.waited_s - leg_s, 0.0))
        desk.roster.answered_well(leg.endpoint)
        if self.prompt is not None and desk.kv is not None:
            desk.kv.answered(self.prompt, leg.endpoint.id)
        if route is not None and prefill is not None:
            desk.roster.handoff_succeeded(prefill, route.decode)
            path = desk.metrics.path(prefill.id, route.decode.id)
            path.arrived += 1
            path.tokens += self.tokens
            if self.facts.stream:  # others show when their answer is whole
                path.streams += 1
                path.seconds += leg_s
                desk.roster.typical.saw_handoff(leg_s * 1000)
                if load is not None:
                    load.saw_first_token(leg_s)

    def leg_failed(self, worker: Endpoint, reason: str, *, blame: Blame) -> None:
        """A leg to this worker came to nothing before the client saw anything; it is sent anew."""
        desk = self.desk
        desk.metrics.worker_failures[worker.id] += 1
        desk.log.event(f"retry id={self.request_id} worker={worker.id} reason={reason}")
        if blame == "handoff":
            self._handoff_failed()
        elif blame == "connection":
            desk.roster.unreachable(worker)
        elif blame == "worker":
            desk.roster.answered_badly(worker, now_s=desk.now_s())
        self._again(reason, counted_as=reason)

    def prefill_late(self, worker: Endpoint) -> None:
        """This worker has answered, but that was read too late; it is sent anew."""
        self.desk.log.event(f"lease id={self.request_id} worker={worker.id}: the router read its answer too late")
        self._again("prefill_late", counted_as="prefill_late")

    def prefill_replaced(self, worker: Endpoint) -> None:
        """This worker began anew before its KV was known to be with the decode worker; it is sent anew."""
        self.desk.log.event(f"replaced id={self.request_id} worker={worker.id}: began anew, what it kept is gone")
        self._again("prefill_replaced", counted_as="prefill_replaced")

    def decode_late(self, why: Literal["lease", "stalled"]) -> None:
        """Its first token came too late to be believed, or does not come; it is sent anew."""
        self.desk.metrics.lease_drops += why == "lease"
        self.desk.log.event(f"{why} id={self.request_id} pair={self.route_name}: first token too late")
        self._handoff_failed()
        self._again("decode_late", counted_as=why)

    def _again(self, reason: str, *, counted_as: str) -> None:
        self.reason = reason
        self.retries += 1
        self.desk.metrics.retries[counted_as] += 1

    def _handoff_failed(self) -> None:
        desk, route = self.desk, self.route
        if route is not None and route.prefill is not None:
            desk.roster.handoff_failed(route.prefill, route.decode, now_s=desk.now_s())
            desk.metrics.path(route.prefill.id, route.decode.id).failed += 1

    def stream_ended(self, pieces: int) -> None:
        """A stream is whole; `pieces` came after its first token."""
        desk, route, first_s = self.desk, self.route, self.first_s
        if first_s is not None and pieces > 1:
            step_s = (desk.now_s() - first_s) / pieces
            desk.roster.typical.saw_decode_step(step_s * 1000)
            if route is not None:
                desk.metrics.tpot[route.decode.role].observe(step_s)

    # Its end.

    def ended(self, outcome: str, *, status: int) -> None:
        """Count it and log it. `status`: what the client was answered; 0: nothing."""
        desk, route, first_s = self.desk, self.route, self.first_s
        ttft_s = None if first_s is None else first_s - self.start_s
        total_s = desk.now_s() - self.start_s
        kind = "none" if route is None else "aggregated" if route.prefill is None else "disaggregated"
        desk.metrics.requests[kind, outcome] += 1
        desk.log.request(
            request_id=self.request_id,
            target=self.path.decode(),
            route=self.route_name,
            status=status,
            ttft_s=ttft_s,
            total_s=total_s,
            end=outcome,
        )
        if desk.access is not None:
            first = None if route is None else (route.prefill or route.decode).id
            served = Served(
                request_id=self.request_id,
                tenant=self.tenant,
                path=self.path.decode(),
                route=self.route_name,
                status=status,
                end=outcome,
                body_bytes=self.facts.body_bytes,
                prompt_tokens=round(self.tokens),
                cached_tokens=0 if first is None else self.overlap.get(first, 0),
                stream=self.facts.stream,
                retries=self.retries,
                ttft_ms=None if ttft_s is None else round(ttft_s * 1000, 3),
                total_ms=round(total_s * 1000, 3),
                traceparent=traceparent_of(self.traced),
            )
            desk.access.add(served)
