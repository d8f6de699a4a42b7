"""`SimulatedRouter`: the router's bookkeeping around `routing.choose` itself, on simulated time."""

from hpcserve.nouns import Endpoint, Handoff, Role
from hpcserve.routing import Demand, Load, Refusal, Route, Table, Typical, choose, pair_of, table_of
from hpcserve.simulate.deployment import Deployment, Flow
from hpcserve.simulate.leg import Request
from hpcserve.simulate.traffic import Lengths
from hpcserve.units import transfer_ms

__all__ = ["SimulatedRouter"]

_MODEL = "simulated"
_MOST_TRIES = 3
"""Legs of one request that may be lost before it is given up."""


class SimulatedRouter:
    """Who serves what. Counts loads when `hpcserve.router` does, and learns typical times from what it sees.

    Left out: its queue for places on a link, and its correction of paths by what pulls took.
    """

    def __init__(self, deployment: Deployment, *, typical: Lengths) -> None:
        """`typical`: the request for which paths are weighed, as a plan weighs them for its workload."""
        self._endpoints = tuple(_endpoint(worker.id, worker.role, deployment) for worker in deployment.workers)
        self._caching = tuple(worker.id for worker in deployment.workers if worker.caches_prefixes)
        self.typical = Typical(
            prefill_ms=deployment.prefill_ms,
            decode_step_ms=deployment.decode_step_ms,
            prompt_tokens=float(typical.input_tokens),
            answer_tokens=float(typical.output_tokens),
        )
        self._proved = {
            pair_of(prefill, decode)
            for prefill in self._endpoints
            for decode in self._endpoints
            if (prefill.id, decode.id) in deployment.flows
        }
        self._transfer_ms = {
            pair: _alone_ms(deployment, pair[1], flows, typical.input_tokens)
            for pair, flows in deployment.flows.items()
        }
        self._preferences = deployment.preferences
        self._down: set[str] = set()
        self._turn = 0
        self.loads = {
            worker.id: Load(prefill_tokens=0.0, kv_room_tokens=worker.latency.kv_tokens)
            for worker in deployment.workers
        }
        self._table = self._make_table()

    def mark(self, worker: str, *, is_up: bool) -> None:
        """The worker answers no more, or again."""
        (self._down.discard if is_up else self._down.add)(worker)
        self._table = self._make_table()

    def choose(self, request: Request) -> Route | Refusal:
        """A route for it, for the first time or anew after a leg was lost."""
        self._turn += 1
        request.tries += 1
        if request.tries > _MOST_TRIES:
            return Refusal(status=502, code="worker_failed", message="the workers that had it died")
        cached = request.cached_tokens
        chosen = choose(
            self._table,
            self.loads,
            self.typical,
            model=_MODEL,
            whole=request.whole,
            avoid=request.avoid,
            turn=self._turn,
            demand=Demand(
                prompt_tokens=float(request.input_tokens),
                answer_tokens=self.typical.answer_tokens,
                overlap=dict.fromkeys(self._caching, cached) if cached else {},
            ),
            preferences=self._preferences,
        )
        if isinstance(chosen, Route):
            request.route = chosen
            if request.tries == 1:
                tokens = self._uncached(request, (chosen.prefill or chosen.decode).id)
                self.typical.saw_request(at_ms=request.arrived_ms, tokens=tokens)
        return chosen

    def prefill_sent(self, request: Request, prefill: str, decode: str, now_ms: float) -> None:
        """A prefill leg went to the one worker; the other is to pull its KV."""
        self._compute(request, prefill)
        request.prefill_at, request.coming_to, request.sent_ms = prefill, decode, now_ms
        self.loads[prefill].in_flight += 1
        self.loads[prefill].prefills += 1
        self.loads[decode].coming += 1

    def prefill_answered(self, request: Request, now_ms: float) -> None:
        """Its prompt is computed."""
        self.typical.saw_prefill(now_ms - request.sent_ms, tokens=request.computes_after)
        self._prefill_over(request)

    def decode_sent(self, request: Request, decode: str, now_ms: float) -> None:
        """A decode leg went to that worker, and waits for its KV."""
        self._keep(request, decode)
        request.decode_sent_ms, request.waits_for_kv = now_ms, True
        self.loads[decode].transfers += 1

    def whole_sent(self, request: Request, worker: str) -> None:
        """The whole request went to that worker."""
        self._compute(request, worker)
        self._keep(request, worker)

    def streams(self, request: Request, now_ms: float) -> None:
        """Its first token came from the worker that decodes, or its KV is there and a first token was prefill's."""
        if request.waits_for_kv:
            self.typical.saw_handoff(now_ms - request.decode_sent_ms)
        self._no_longer_waits(request)

    def ended(self, request: Request, now_ms: float) -> None:
        """All its tokens are there."""
        if request.first_ms is not None and request.output_tokens > 1:
            self.typical.saw_decode_step((now_ms - request.first_ms) / request.output_tokens)
        self.given_up(request)

    def given_up(self, request: Request) -> None:
        """None of its legs counts any more."""
        if request.prefill_at:
            self._prefill_over(request)
        self._no_longer_waits(request)
        if request.decode_at:
            load = self.loads[request.decode_at]
            load.in_flight -= 1
            load.kv_tokens -= request.keeps
            request.decode_at = ""

    def _uncached(self, request: Request, worker: str) -> float:
        """Tokens of its input that this worker has to compute."""
        cached = request.cached_tokens if worker in self._caching else 0
        return max(float(request.input_tokens - cached), 1.0)

    def _compute(self, request: Request, worker: str) -> None:
        load = self.loads[worker]
        request.computes = self._uncached(request, worker)
        request.computes_after = request.computes + (load.prefill_tokens or 0.0)
        request.computes_at = worker
        load.waits(request.computes)

    def _keep(self, request: Request, worker: str) -> None:
        load = self.loads[worker]
        request.decode_at = worker
        request.keeps = request.input_tokens + self.typical.answer_tokens
        load.in_flight += 1
        load.kv_tokens += request.keeps

    def _prefill_over(self, request: Request) -> None:
        self.loads[request.prefill_at].in_flight -= 1
        self.loads[request.prefill_at].prefills -= 1
        self.loads[request.coming_to].coming -= 1
        request.prefill_at = ""
        self._computed(request)

    def _no_longer_waits(self, request: Request) -> None:
        if request.waits_for_kv:
            request.waits_for_kv = False
            self.loads[request.decode_at].transfers -= 1
        elif not request.prefill_at:
            self._computed(request)

    def _computed(self, request: Request) -> None:
        if request.computes_at:
            self.loads[request.computes_at].computed(request.computes)
            request.computes_at = ""

    def _make_table(self) -> Table:
        return table_of(
            self._endpoints,
            transfer_ms=self._transfer_ms,
            proved=self._proved,
            skipped=self._down,
            models=(_MODEL,),
        )


def _endpoint(worker: str, role: Role, deployment: Deployment) -> Endpoint:
    """What discovery would say of a worker; which may be paired is the deployment's word, so that all look alike."""
    handoff = Handoff(
        kind="nixl-pull", connector="simulated", connector_version="1", block_size=16, kv_dtype="auto",
        tensor_parallel=1, lease_s=30,
    )  # fmt: skip
    return Endpoint(
        id=worker,
        generation="simulated",
        role=role,
        url="http://simulated:1",
        node="simulated",
        pid=1,
        model=_MODEL,
        engine="sim",
        engine_version="1",
        handoff=None if role == Role.AGGREGATED or not deployment.flows else handoff,
        simulated=True,
    )


def _alone_ms(deployment: Deployment, decode: str, flows: tuple[Flow, ...], tokens: int) -> float:
    """The KV of an input alone on its links: the slowest of them, with the bytes of all flows that cross it."""
    if deployment.kv_bytes is None:
        return deployment.transfer_base_ms
    kept = deployment.kv_bytes(tokens, deployment.ranks.get(decode, 1))
    load: dict[str, float] = {}
    rates: dict[str, float] = {}
    for flow in flows:
        for link in flow.links:
            load[link.name] = load.get(link.name, 0.0) + flow.share * kept
            rates[link.name] = min(link.gb_per_s, rates.get(link.name, link.gb_per_s))
    slowest = max((transfer_ms(size_bytes=size, gb_per_s=rates[name]) for name, size in load.items()), default=0.0)
    return deployment.transfer_base_ms + slowest
