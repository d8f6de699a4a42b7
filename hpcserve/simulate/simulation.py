"""`Simulation`: the whole service, event by event."""

from collections.abc import Iterator

from hpcserve.latency import Chunk
from hpcserve.nouns import Role, Slo
from hpcserve.routing import Refusal
from hpcserve.simulate.agenda import ARRIVAL, BOUNDARY, FAILURE, FLOW, Agenda
from hpcserve.simulate.deployment import Deployment, Failure
from hpcserve.simulate.engine import Engine
from hpcserve.simulate.leg import Leg, Request, State
from hpcserve.simulate.outcome import Ending, Outcome, Tally
from hpcserve.simulate.router import SimulatedRouter
from hpcserve.simulate.traffic import Arrival, Traffic
from hpcserve.simulate.transfers import Transfers

__all__ = ["Simulation"]


class Simulation:
    """One run. Memory grows with the requests that are in the service, not with those that were."""

    def __init__(
        self, deployment: Deployment, traffic: Traffic, *, slo: Slo, seed: int, warm_up: int, keep_records: bool
    ) -> None:
        self.agenda = Agenda()
        self.engines = {worker.id: Engine(worker, self) for worker in deployment.workers}
        self.transfers = Transfers(deployment, self.agenda, self._arrived)
        self.router = SimulatedRouter(deployment, typical=traffic.typical)
        self.live: dict[int, Request] = {}
        self._deployment = deployment
        self._offered_rate = traffic.rate
        self._tally = Tally(slo, warm_up=warm_up, keep_records=keep_records)
        self._arrivals: Iterator[Arrival] = traffic.arrivals(seed)
        self._first_token_at_prefill = deployment.first_token_by == Role.PREFILL
        self._count = 0
        self._has_more = True
        self._expect_next()
        for failure in deployment.failures:
            self.agenda.at(failure.at_ms, FAILURE, self._fail, failure)

    def step(self) -> bool:
        """Let one thing happen; False when every request has ended."""
        if not self._has_more and not self.live:
            return False
        if not self.agenda.next():
            raise AssertionError(f"{len(self.live)} requests wait for something that never comes")
        return True

    def run(self) -> Outcome:
        """All of it."""
        while self.step():
            pass
        return self.outcome()

    def outcome(self) -> Outcome:
        """What happened so far."""
        engines = tuple(self.engines.values())
        unknown = sorted(engine.spec.id for engine in engines if engine.seats.room.limit_tokens is None)
        remarks = []
        if unknown:
            remarks.append(f"KV capacity of {', '.join(unknown)} is not known and was taken to be without limit")
        if self._deployment.flows and self._deployment.kv_bytes is None:
            remarks.append("no KV size was given: handovers moved nothing")
        return self._tally.outcome(
            offered_rate=self._offered_rate,
            duration_ms=self.agenda.now_ms,
            engines=engines,
            links=self.transfers.network.use(self.agenda.now_ms),
            remarks=tuple(remarks),
        )

    # Requests.

    def _expect_next(self) -> None:
        arrival = next(self._arrivals, None)
        if arrival is None:
            self._has_more = False
        else:
            self.agenda.at(arrival.at_ms, ARRIVAL, self._arrive, arrival)

    def _arrive(self, arrival: Arrival, _: int) -> None:
        request = Request(self._count, arrival)
        self._count += 1
        self._tally.events += 1
        self.live[request.number] = request
        self._expect_next()
        self._route(request)

    def _route(self, request: Request) -> None:
        chosen = self.router.choose(request)
        if isinstance(chosen, Refusal):
            self._end(request, "refused")
        elif chosen.prefill is None:
            request.decode_leg = leg = self._leg(request, chosen.decode.id, output_tokens=request.output_tokens)
            if self.engines[leg.worker].fits(leg):
                self.router.whole_sent(request, leg.worker)
                self._send(leg)
            else:
                self._end(request, "refused")
        else:
            first = self._leg(request, chosen.prefill.id, output_tokens=0, hands_over=True)
            second = self._leg(request, chosen.decode.id, output_tokens=request.output_tokens, pulls=True)
            if all(self.engines[leg.worker].fits(leg) for leg in (first, second)):
                request.prefill_leg = first
                self.router.prefill_sent(request, first.worker, second.worker, self.agenda.now_ms)
                self._send(first)
            else:
                self._end(request, "refused")

    def _leg(
        self, request: Request, worker: str, *, output_tokens: int, pulls: bool = False, hands_over: bool = False
    ) -> Leg:
        caches = self.engines[worker].spec.caches_prefixes and not pulls
        return Leg(
            request,
            worker,
            input_tokens=request.input_tokens,
            output_tokens=output_tokens,
            cached_tokens=request.cached_tokens if caches else 0,
            pulls=pulls,
            hands_over=hands_over,
        )

    def _send(self, leg: Leg) -> None:
        if self._deployment.leg_ms > 0:
            self.agenda.at(self.agenda.now_ms + self._deployment.leg_ms, ARRIVAL, self._deliver, leg)
        else:
            self._deliver(leg)

    def _deliver(self, leg: Leg, _: int = 0) -> None:
        engine = self.engines[leg.worker]
        if leg.state == State.GONE:
            return
        if engine.is_up:
            engine.add(leg, self.agenda.now_ms)
        else:
            leg.state = State.GONE
            self._lost(leg)

    def _send_decode(self, request: Request) -> None:
        if request.route is None:
            raise AssertionError("a request without a route is nowhere")
        worker = request.route.decode.id
        leg = self._leg(request, worker, output_tokens=request.output_tokens, pulls=True)
        leg.made = int(self._first_token_at_prefill)
        request.decode_leg = leg
        self.router.decode_sent(request, worker, self.agenda.now_ms)
        self._send(leg)

    def _end(self, request: Request, ending: Ending) -> None:
        del self.live[request.number]
        self._tally.end(request, ending, self.agenda.now_ms)

    # What engines tell.

    def at_boundary(self, engine: Engine, at_ms: float) -> None:
        """See `Listener`."""
        self.agenda.at(at_ms, BOUNDARY, self._boundary, engine, engine.version)

    def _boundary(self, engine: Engine, version: int) -> None:
        if engine.version == version:
            engine.boundary(self.agenda.now_ms)

    def computing(self, leg: Leg, chunk: Chunk, end_ms: float) -> None:
        """See `Listener`."""
        request = leg.request
        if self.transfers.overlaps(request):
            self.transfers.computing(request, leg, chunk, end_ms)
            if request.decode_leg is None and request.output_tokens > self._first_token_at_prefill:
                self._send_decode(request)

    def prefilled(self, leg: Leg, now_ms: float) -> None:
        """See `Listener`."""
        if leg.late_ms > 0:
            self.agenda.at(now_ms + leg.late_ms, FLOW, self._prefilled, leg)
        else:
            self._prefilled(leg)

    def _prefilled(self, leg: Leg, _: int = 0) -> None:
        if leg.state == State.GONE:
            return
        request, now_ms = leg.request, self.agenda.now_ms
        request.prefilled_ms = now_ms
        self._tally.events += 1
        self.router.prefill_answered(request, now_ms)
        if self._first_token_at_prefill:
            request.first_ms = now_ms
            self._tally.events += 1
            if request.output_tokens == 1:
                self.engines[leg.worker].release(leg, now_ms)
                self._end(request, "ok")
                return
        if request.decode_leg is None:
            self._send_decode(request)
        else:
            self.transfers.prefilled(request)

    def pull(self, leg: Leg, now_ms: float) -> None:
        """See `Listener`."""
        leg.request.pulled_ms = now_ms
        self.transfers.start(leg)

    def _arrived(self, leg: Leg) -> None:
        request, now_ms = leg.request, self.agenda.now_ms
        request.transferred_ms = now_ms
        self._tally.events += 1
        if request.prefill_leg is not None:
            self.engines[request.prefill_leg.worker].release(request.prefill_leg, now_ms)
            request.prefill_leg = None
        if self._first_token_at_prefill:
            self.router.streams(request, now_ms)
        leg.pulls = False
        self.engines[leg.worker].pulled(leg, now_ms)

    def first_token(self, leg: Leg, now_ms: float) -> None:
        """See `Listener`."""
        self._tally.events += 1
        leg.request.first_ms = now_ms
        self.router.streams(leg.request, now_ms)

    def finished(self, leg: Leg, now_ms: float) -> None:
        """See `Listener`."""
        self.router.ended(leg.request, now_ms)
        self._end(leg.request, "ok")

    # Failures.

    def _fail(self, failure: Failure, _: int) -> None:
        engine = self.engines[failure.worker]
        self.router.mark(failure.worker, is_up=False)
        for leg in engine.die(self.agenda.now_ms):
            self._lost(leg)
        if failure.down_ms is not None:
            self.agenda.at(self.agenda.now_ms + failure.down_ms, FAILURE, self._come_back, engine)

    def _come_back(self, engine: Engine, _: int) -> None:
        engine.is_up = True
        self.router.mark(engine.spec.id, is_up=True)

    def _lost(self, leg: Leg) -> None:
        """A leg died with its worker, or found it dead: its other leg is given up, the request is routed anew."""
        request, now_ms = leg.request, self.agenda.now_ms
        self.transfers.abort(request)
        was_prefilled = request.prefilled_ms is not None
        self.router.given_up(request)
        for other in (request.prefill_leg, request.decode_leg):
            if other is not None and other is not leg:
                self._cancel(other, now_ms)
        if request.decode_leg is not None or was_prefilled:
            request.whole = "leg_lost"
        request.avoid |= {leg.worker}
        request.prefill_leg = request.decode_leg = None
        request.prefilled_ms = request.pulled_ms = request.transferred_ms = None
        if request.first_ms is not None:
            self._end(request, "failed")
        else:
            self._route(request)

    def _cancel(self, leg: Leg, now_ms: float) -> None:
        if leg.state == State.SENT:
            leg.state = State.GONE
        elif leg.state != State.GONE:
            self.engines[leg.worker].release(leg, now_ms)
