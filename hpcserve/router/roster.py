"""Who is there, who answers, what is proved, and from it the immutable table that requests are routed by."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hpcserve.nouns import Endpoint, PairProof, Plan, Role, RouterState
from hpcserve.router.ledger import Finding, Ledger
from hpcserve.routing import Load, Pair, Table, Typical, pair_of, table_of

__all__ = ["Candidate", "Roster"]

_MOST_BAD_ANSWERS = 3
"""Answers of 5xx in a row after which a worker is left out until it says that it is well."""
_UNKNOWN_PREFILL_MS = 100.0
"""A first guess where the plan has none; the mean of what is seen takes its place within some 20 requests."""
_UNKNOWN_STEP_MS = 20.0
"""The same for one decode step."""


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

    def __init__(self, plan: Plan, *, model: str) -> None:
        """`model`: the served name, known while no worker is there yet."""
        self.plan = plan
        self.endpoints: tuple[Endpoint, ...] = ()
        self.loads: dict[str, Load] = {worker.id: Load() for worker in plan.workers}
        self.typical = Typical(
            prefill_ms=plan.verdict.prefill_ms or _UNKNOWN_PREFILL_MS, decode_step_ms=_UNKNOWN_STEP_MS
        )
        self._model = model
        self._transfer_ms = {(path.prefill, path.decode): path.transfer_ms for path in plan.paths}
        self._ledger = Ledger()
        self._skipped: set[str] = set()
        self._stalled: set[str] = set()
        self._bad_answers: Counter[str] = Counter()
        self.table: Table = self._make_table()

    def take(self, endpoints: tuple[Endpoint, ...]) -> bool:
        """Swap in what discovery sees now; whether anything changed. A new generation is a new worker."""
        if endpoints == self.endpoints:
            return False
        before = {endpoint.id: endpoint.generation for endpoint in self.endpoints}
        for endpoint in endpoints:
            if before.get(endpoint.id) != endpoint.generation:
                self.loads[endpoint.id] = Load()  # legs to the old one still count down their own
                self._skipped.discard(endpoint.id)
                self._stalled.discard(endpoint.id)
                del self._bad_answers[endpoint.id]
        self.endpoints = endpoints
        self._ledger.keep_only({(endpoint.id, endpoint.generation) for endpoint in endpoints})
        self._renew()
        return True

    # Health, from what requests and probes saw.

    def unreachable(self, endpoint: Endpoint) -> None:
        """No connection, or it broke: left out until a probe succeeds."""
        self._skip(endpoint)

    def answered_badly(self, endpoint: Endpoint) -> None:
        """An answer of 5xx that nothing but this worker can be blamed for."""
        self._bad_answers[endpoint.id] += 1
        if self._bad_answers[endpoint.id] >= _MOST_BAD_ANSWERS:
            self._skip(endpoint)

    def answered_well(self, endpoint: Endpoint) -> None:
        """A good answer."""
        if self._bad_answers[endpoint.id]:
            self._bad_answers[endpoint.id] = 0

    def probed(self, endpoint: Endpoint, *, well: bool) -> bool:
        """What a look at its `/health` said; whether that changed anything."""
        if not well:
            return self._skip(endpoint)
        if endpoint.id not in self._skipped or not self._is_current(endpoint):
            return False
        self._skipped.discard(endpoint.id)
        self._bad_answers[endpoint.id] = 0
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

    def _renew(self) -> None:
        self.table = self._make_table()

    def _make_table(self) -> Table:
        return table_of(
            self.endpoints,
            transfer_ms=self._transfer_ms,
            proved=self._ledger.proved,
            failed=self._ledger.failed,
            skipped=self._skipped | self._stalled,
            models=(self._model,),
        )
