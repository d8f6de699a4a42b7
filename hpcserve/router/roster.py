"""Who is there, who answers, what is proved, and from it the immutable table that requests are routed by."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hpcserve.nouns import Endpoint, PairProof, Plan, Role, RouterState, Workload
from hpcserve.router.breaker import Breaker, BreakerState
from hpcserve.router.ledger import Finding, Ledger
from hpcserve.router.slots import LinkTimes
from hpcserve.routing import (
    UNKNOWN_PREFILL_MS,
    UNKNOWN_STEP_MS,
    Load,
    Pair,
    PathTimes,
    Route,
    Table,
    Typical,
    pair_of,
    table_of,
)

__all__ = ["Candidate", "Roster"]

_MOST_REMEMBERED = 4096
"""Workers whose last generation is kept: more than one job has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """What is to be proved next: a pair, or a worker that serves alone (`prefill` is None)."""

    prefill: Endpoint | None
    decode: Endpoint
    rounds: int = 1
    """How many handoffs must be right."""

    @property
    def pair(self) -> Pair:
        """Its name among the proofs."""
        if self.prefill is None:
            return ("", "", self.decode.id, self.decode.generation)
        return pair_of(self.prefill, self.decode)

    def adds(self, covered: set[str]) -> int:
        """How many workers it brings in that no proof covers yet."""
        return (self.decode.id not in covered) + (self.prefill is not None and self.prefill.id not in covered)

    @property
    def title(self) -> str:
        """`prefill-0>decode-1`, or `aggregated-0`."""
        return self.decode.id if self.prefill is None else f"{self.prefill.id}>{self.decode.id}"


class Roster:
    """Everything that is known of the workers of one plan. Changes seldom; `table` is what requests see."""

    def __init__(self, plan: Plan, *, model: str, workload: Workload) -> None:
        """`model`: the served name, known while no worker is there yet; `workload`: the typical request of the plan."""
        self.plan = plan
        self.endpoints: tuple[Endpoint, ...] = ()
        self.loads: dict[str, Load] = {worker.id: Load() for worker in plan.workers}
        self.typical = Typical(
            prefill_ms=plan.verdict.prefill_ms or UNKNOWN_PREFILL_MS,
            decode_step_ms=UNKNOWN_STEP_MS,
            prompt_tokens=float(workload.input_tokens),
            answer_tokens=float(workload.output_tokens),
        )
        self.paths = PathTimes()
        self.longest_prompt: int | None = None
        """The most prompt tokens that a worker takes; None: unknown."""
        self._model = model
        self._transfer_ms = {(path.prefill, path.decode): path.transfer_ms for path in plan.paths}
        self._ledger = Ledger()
        self._skipped: set[str] = set()
        self._stalled: set[str] = set()
        self._breakers: dict[str, Breaker] = {}
        self._generations: dict[str, str] = {}
        """The last one of each worker, of those that are not there as well; by when they were seen last."""
        self.table: Table = self._make_table()

    def take(self, endpoints: tuple[Endpoint, ...]) -> bool:
        """Swap in what discovery sees now; whether anything changed.

        A new generation is a new worker. One that was not seen for a while and is back has the requests that it had.
        """
        if endpoints == self.endpoints:
            return False
        for endpoint in endpoints:
            before = self._generations.pop(endpoint.id, None)
            self._generations[endpoint.id] = endpoint.generation  # last, as it was seen last
            if before not in {None, endpoint.generation}:
                self.loads[endpoint.id] = Load()  # legs to the old one still count down their own
                self._skipped.discard(endpoint.id)
                self._stalled.discard(endpoint.id)
                self._breakers.pop(endpoint.id, None)
        for worker in list(self._generations)[: -max(_MOST_REMEMBERED, len(endpoints))]:
            del self._generations[worker]
        self.endpoints = endpoints
        self.paths.keep_only({endpoint.id for endpoint in endpoints})
        self.longest_prompt = max((each.max_model_len or 0 for each in endpoints), default=0) or None
        self._ledger.keep_only({(endpoint.id, endpoint.generation) for endpoint in endpoints})
        self._renew()
        return True

    def is_replaced(self, endpoint: Endpoint) -> bool:
        """Whether another generation of that worker was seen since: what the old one kept is gone."""
        return self._generations.get(endpoint.id, endpoint.generation) != endpoint.generation

    def load_of(self, endpoint: Endpoint) -> Load:
        """What that worker is doing."""
        load = self.loads.get(endpoint.id)
        if load is None:
            load = self.loads[endpoint.id] = Load()
        return load

    # Health, from what requests and probes saw.

    def unreachable(self, endpoint: Endpoint) -> None:
        """No connection, or it broke: left out until a probe succeeds."""
        self._skip(endpoint)

    def answered_badly(self, endpoint: Endpoint, *, now_s: float) -> None:
        """An answer of 5xx that nothing but this worker can be blamed for; after some it is left out and tried."""
        if self._is_current(endpoint) and self._breakers.setdefault(endpoint.id, Breaker()).failed(now_s):
            self._renew()

    def answered_well(self, endpoint: Endpoint) -> None:
        """A good answer."""
        breaker = self._breakers.get(endpoint.id)
        if breaker is not None:
            breaker.succeeded()

    def to_be_tried(self, now_s: float) -> list[Endpoint]:
        """Workers whose breaker is half-open: a prompt of our own shows whether they are well again."""
        breakers, skipped = self._breakers, self._skipped
        return [
            each
            for each in self.endpoints
            if each.id in breakers and each.id not in skipped and breakers[each.id].state(now_s) == "half-open"
        ]

    def tried(self, endpoint: Endpoint, *, well: bool, now_s: float) -> bool:
        """How that ended; whether the worker is back."""
        breaker = self._breakers.get(endpoint.id)
        if breaker is None or not self._is_current(endpoint) or not breaker.tried(now_s, well=well):
            return False
        self._renew()
        return True

    def breakers(self, now_s: float) -> Iterator[tuple[str, BreakerState]]:
        """The state of each worker's breaker."""
        for endpoint in self.endpoints:
            breaker = self._breakers.get(endpoint.id)
            yield endpoint.id, "closed" if breaker is None else breaker.state(now_s)

    def path_breakers(self, now_s: float) -> Iterator[tuple[str, BreakerState]]:
        """The same of each path that was tried: closed while it is proved, half-open when it is to be proved again."""
        due = frozenset(self._ledger.due(now_s))
        for proof in self._ledger.proofs():
            if proof.prefill is not None:
                pair = (proof.prefill, proof.prefill_generation or "", proof.decode, proof.decode_generation)
                state: BreakerState = "closed" if proof.proved else "half-open" if pair in due else "open"
                yield f"{proof.prefill}>{proof.decode}", state

    def probed(self, endpoint: Endpoint, *, well: bool) -> bool:
        """What a look at its `/health` said; whether that changed anything."""
        if not well:
            return self._skip(endpoint)
        if endpoint.id not in self._skipped or not self._is_current(endpoint):
            return False
        self._skipped.discard(endpoint.id)
        self._renew()
        return True

    def stalled(self, endpoint: Endpoint, *, still: bool) -> bool:
        """Whether its engine stands still under its requests, whatever `/health` says; whether that is news."""
        if not self._is_current(endpoint) or still == (endpoint.id in self._stalled):
            return False
        (self._stalled.add if still else self._stalled.discard)(endpoint.id)
        self._renew()
        return True

    def _skip(self, endpoint: Endpoint) -> bool:
        if not self._is_current(endpoint) or endpoint.id in self._skipped:
            return False
        self._skipped.add(endpoint.id)
        self._renew()
        return True

    def _is_current(self, endpoint: Endpoint) -> bool:
        return any(each.id == endpoint.id and each.generation == endpoint.generation for each in self.endpoints)

    def handoff_failed(self, prefill: Endpoint, decode: Endpoint, *, now_s: float) -> None:
        """A handoff between these two failed or came late; after some in a row the pair must be proved again."""
        if self._ledger.handoff_failed(pair_of(prefill, decode), now_s=now_s):
            self._renew()

    def handoff_succeeded(self, prefill: Endpoint, decode: Endpoint) -> None:
        """A handoff between these two brought a first token in time."""
        if self._ledger.bad_handoffs:
            self._ledger.handoff_succeeded(pair_of(prefill, decode))

    # Proofs.

    def candidates(self, now_s: float) -> Iterator[Candidate]:
        """What is to be proved, most urgent first: what brings in a worker that no proof covers, then the rest."""
        ledger = self._ledger
        covered = {worker for pair in ledger.proved for worker in (pair[0], pair[2])}
        usable = {endpoint.id for endpoint in self.table.whole}
        by_id = {endpoint.id: endpoint for endpoint in self.endpoints}
        found = [Candidate(prefill=prefill, decode=decode) for prefill, decode in self.table.untried]
        alone = [each for each in self.endpoints if each.role == Role.AGGREGATED and each.id in usable]
        found += [Candidate(prefill=None, decode=each) for each in alone]
        found = [each for each in found if not ledger.has(each.pair)]
        found += [
            Candidate(prefill=by_id.get(pair[0]), decode=by_id[pair[2]])
            for pair in ledger.due(now_s)
            if pair[2] in usable and (not pair[0] or pair[0] in usable)
        ]
        for each in sorted(found, key=lambda each: -each.adds(covered)):  # stable: nearest first among equals
            yield replace(each, rounds=ledger.rounds(each.pair))

    def record(self, candidate: Candidate, finding: Finding, *, now_s: float) -> None:
        """Take in the end of a proof. What failed is tried again later, at growing intervals."""
        prefill, decode = candidate.prefill, candidate.decode
        if not self._is_current(decode) or (prefill is not None and not self._is_current(prefill)):
            return
        proof = PairProof(
            prefill=None if prefill is None else prefill.id,
            prefill_generation=None if prefill is None else prefill.generation,
            decode=decode.id,
            decode_generation=decode.generation,
            proved=finding.outcome == "proved",
            reason=finding.reason,
        )
        self._ledger.record(proof, finding, now_s=now_s)
        self._renew()

    def take_over(self, proofs: tuple[PairProof, ...]) -> None:
        """What an earlier router of this job proved of workers that still run; to be called after `take`."""
        alive = {endpoint.id: endpoint.generation for endpoint in self.endpoints}
        for proof in proofs:
            same_prefill = proof.prefill is None or alive.get(proof.prefill) == proof.prefill_generation
            if proof.proved and same_prefill and alive.get(proof.decode) == proof.decode_generation:
                self._ledger.take_over(proof)
        self._renew()

    # What others see.

    @property
    def simulated(self) -> bool:
        """Whether a worker is a simulated engine: then no figure and no answer of this service is a model's."""
        return any(endpoint.simulated for endpoint in self.endpoints)

    @property
    def ready(self) -> bool:
        """Whether every planned worker was proved once, and a proved route is alive now."""
        if any(worker.id not in self._ledger.ever_proved for worker in self.plan.workers):
            return False
        if self.plan.mode == "aggregated":
            usable = {endpoint.id for endpoint in self.table.whole}
            return any(pair[2] in usable for pair in self._ledger.proved)
        return bool(self.table.rows)

    def waiting_for(self) -> tuple[str, ...]:
        """What is missing now, one sentence for each worker: not announced, not answering, or not proved."""
        covered = {worker for pair in self._ledger.proved for worker in (pair[0], pair[2])}
        known = {endpoint.id: endpoint for endpoint in self.endpoints}
        missing = []
        for worker in self.plan.workers:
            endpoint = known.get(worker.id)
            if endpoint is None:
                missing.append(f"{worker.id}: not announced")
            elif worker.id in self._stalled:
                missing.append(f"{worker.id}: its engine stands still")
            elif worker.id in self._skipped:
                missing.append(f"{worker.id}: does not answer")
            elif worker.id in self._breakers and self._breakers[worker.id].is_open:
                missing.append(f"{worker.id}: answers with errors")
            elif endpoint.draining:
                missing.append(f"{worker.id}: draining")
            elif worker.id not in covered:
                failed = [p for p in self.proofs() if worker.id in {p.prefill, p.decode} and not p.proved]
                missing.append(f"{worker.id}: {failed[-1].reason if failed else 'not proved yet'}")
        return tuple(missing)

    def proofs(self) -> tuple[PairProof, ...]:
        """All proofs of workers that are alive."""
        return self._ledger.proofs()

    def state(self, *, ready_since_utc: str | None) -> RouterState:
        """The record for `router.state.json`."""
        return RouterState(
            ready=ready_since_utc is not None,
            ready_since_utc=ready_since_utc,
            waiting_for=self.waiting_for(),
            proofs=self.proofs(),
            mismatches=self.table.mismatches,
        )

    def link_times(self, decode: str) -> LinkTimes | None:
        """What a handoff to this worker takes now; None until its transfer times have been reported."""
        pull_ms = self.paths.slowest_ms(decode, self._transfer_ms)
        if pull_ms is None:
            return None
        typical = self.typical
        off_link_ms = typical.prefill_ms
        if typical.handoff_ms:  # no pull takes longer than the quickest leg that it was a part of
            pull_ms = min(pull_ms, typical.handoff_ms)
            off_link_ms += typical.handoff_ms - pull_ms
        return LinkTimes(prefill_s=off_link_ms / 1000, pull_s=pull_ms / 1000)

    def handed(self, route: Route) -> None:
        """A handoff is begun: what the plan says that it takes, beside those that share the link, is noted."""
        if route.prefill is not None:
            prefill, decode = route.prefill.id, route.decode.id
            corrected_ms = route.estimate.transfer_ms - self.typical.handoff_ms
            self.paths.handed(prefill, decode, predicted_ms=corrected_ms / self.paths.correction(prefill, decode))

    def reported(self, endpoint: Endpoint, *, transfers: int, seconds: float) -> None:
        """What a decode worker counted of its pulls since it was last asked: corrects the paths that lead to it."""
        if self.paths.reported(endpoint.id, transfers=transfers, seconds=seconds):
            self._renew()

    def _corrected_ms(self) -> dict[tuple[str, str], float]:
        found = dict(self._transfer_ms)
        for pair, ratio in self.paths.corrections().items():
            if pair in found:
                found[pair] *= ratio
        return found

    def _renew(self) -> None:
        self.table = self._make_table()

    def _make_table(self) -> Table:
        return table_of(
            self.endpoints,
            transfer_ms=self._corrected_ms(),
            proved=self._ledger.proved,
            failed=self._ledger.failed,
            skipped=self._skipped | self._stalled | {name for name, each in self._breakers.items() if each.is_open},
            models=(self._model,),
        )
