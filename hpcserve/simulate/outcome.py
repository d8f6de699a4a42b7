"""`Outcome`: what a simulation says, and `Tally`, which adds it up while requests come and go."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hpcserve.nouns import Percentiles, Role, Slo
from hpcserve.simulate.engine import Engine
from hpcserve.simulate.flows import LinkUse
from hpcserve.simulate.leg import Request
from hpcserve.simulate.quantiles import Quantiles

__all__ = ["Ending", "Outcome", "PoolUse", "Record", "Tally", "WorkerUse"]

Ending = Literal["ok", "refused", "failed"]
_MS_PER_S = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One request. Times in ms: since the start (`..._at_ms`) or durations; None where it did not come so far."""

    number: int
    ending: Ending
    arrived_at_ms: float
    input_tokens: int
    output_tokens: int
    prefill: str | None
    """The worker that computed its prefill for another; None where one served it whole."""
    decode: str | None
    ttft_ms: float | None
    tpot_ms: float | None
    prefilled_at_ms: float | None
    pulled_at_ms: float | None
    """When its KV was asked for; from then to `transferred_at_ms` is the transfer's own time."""
    transferred_at_ms: float | None
    finished_at_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerUse:
    """What one worker did."""

    id: str
    role: Role
    busy: float
    """Share of the time in which it computed."""
    most_kv_tokens: int
    preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUse:
    """All workers of one role."""

    role: Role
    workers: int
    busy: float
    """Mean share of the time in which they computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the service gave its clients. Percentiles are within 0.1 %, everything else is exact for this model.

    Requests of the warm-up are in `duration_ms`, `workers`, `pools`, `links`, `events` and `records`, and nowhere else.
    """

    offered_rate: float
    requests: int
    """That ended; each exactly once: `ok` + `refused` + `failed`."""
    ok: int
    refused: int
    """Nobody could ever hold them, or nobody was up."""
    failed: int
    """Broken off by a worker's death after their first token."""
    good: int
    """Requests whose TTFT and TPOT both met the SLO; one token has no TPOT to miss."""
    attainment: float
    """good ÷ requests; 0 where none ended."""
    good_per_s: float
    """Good request rate: good requests ÷ the time from the first arrival that counts to the last end."""
    ttft_ms: Percentiles
    tpot_ms: Percentiles
    transfer_ms: Percentiles
    """From the end of prefill to the KV's being there, the wait for room included; None where none moved."""
    mean_ttft_ms: float | None
    mean_tpot_ms: float | None
    duration_ms: float
    workers: tuple[WorkerUse, ...]
    pools: tuple[PoolUse, ...]
    links: tuple[LinkUse, ...]
    events: int
    """Of requests: arrivals, ends of prefill and of transfer, first tokens, ends."""
    remarks: tuple[str, ...]
    """What was not known or left out."""
    records: tuple[Record, ...]
    """One for each request, by number, the warm-up's first, where they were asked for."""

    def pool(self, role: Role) -> PoolUse:
        """The pool of that role; KeyError where there is none."""
        for pool in self.pools:
            if pool.role == role:
                return pool
        raise KeyError(role)


class Tally:
    """Counts ends. It keeps nothing per request unless records are asked for."""

    def __init__(self, slo: Slo, *, warm_up: int, keep_records: bool) -> None:
        self._slo = slo
        self._warm_up = warm_up
        self._keep = keep_records
        self._records: list[Record] = []
        self._ends: dict[Ending, int] = {"ok": 0, "refused": 0, "failed": 0}
        self._good = 0
        self._ttft, self._tpot, self._transfer = Quantiles(), Quantiles(), Quantiles()
        self._first_ms: float | None = None
        self._last_ms = 0.0
        self.events = 0

    def end(self, request: Request, ending: Ending, now_ms: float) -> None:
        """The request is over."""
        self.events += 1
        ttft_ms = None if request.first_ms is None else request.first_ms - request.arrived_ms
        tpot_ms = None
        if ending == "ok" and request.first_ms is not None and request.output_tokens > 1:
            tpot_ms = (now_ms - request.first_ms) / (request.output_tokens - 1)
        if request.number >= self._warm_up:
            self._count(request, ending, now_ms, ttft_ms, tpot_ms)
        if self._keep:
            self._records.append(_record(request, ending, now_ms, ttft_ms, tpot_ms))

    def _count(
        self, request: Request, ending: Ending, now_ms: float, ttft_ms: float | None, tpot_ms: float | None
    ) -> None:
        self._ends[ending] += 1
        if self._first_ms is None or request.arrived_ms < self._first_ms:
            self._first_ms = request.arrived_ms
        self._last_ms = max(self._last_ms, now_ms)
        if ttft_ms is not None:
            self._ttft.add(ttft_ms)
        if tpot_ms is not None:
            self._tpot.add(tpot_ms)
        if request.prefilled_ms is not None and request.transferred_ms is not None:
            self._transfer.add(max(0.0, request.transferred_ms - request.prefilled_ms))
        self._good += ending == "ok" and self._slo.is_met(ttft_ms=ttft_ms, tpot_ms=tpot_ms)

    def outcome(
        self,
        *,
        offered_rate: float,
        duration_ms: float,
        engines: Sequence[Engine],
        links: tuple[LinkUse, ...],
        remarks: tuple[str, ...],
    ) -> Outcome:
        """All of it."""
        ended = sum(self._ends.values())
        counted_ms = self._last_ms - (self._first_ms or 0.0)
        used = tuple(
            WorkerUse(
                id=engine.spec.id,
                role=engine.spec.role,
                busy=engine.busy_ms / duration_ms if duration_ms else 0.0,
                most_kv_tokens=engine.seats.room.most_tokens,
                preemptions=engine.seats.preemptions,
            )
            for engine in engines
        )
        return Outcome(
            offered_rate=offered_rate,
            requests=ended,
            ok=self._ends["ok"],
            refused=self._ends["refused"],
            failed=self._ends["failed"],
            good=self._good,
            attainment=self._good / ended if ended else 0.0,
            good_per_s=self._good / counted_ms * _MS_PER_S if counted_ms else 0.0,
            ttft_ms=self._ttft.percentiles(),
            tpot_ms=self._tpot.percentiles(),
            transfer_ms=self._transfer.percentiles(),
            mean_ttft_ms=self._ttft.mean,
            mean_tpot_ms=self._tpot.mean,
            duration_ms=duration_ms,
            workers=used,
            pools=_pools(used),
            links=links,
            events=self.events,
            remarks=remarks,
            records=tuple(sorted(self._records, key=lambda record: record.number)),
        )


def _pools(used: Sequence[WorkerUse]) -> tuple[PoolUse, ...]:
    shares: dict[Role, list[float]] = {}
    for worker in used:
        shares.setdefault(worker.role, []).append(worker.busy)
    return tuple(
        PoolUse(role=role, workers=len(busy), busy=sum(busy) / len(busy)) for role, busy in sorted(shares.items())
    )


def _record(request: Request, ending: Ending, now_ms: float, ttft_ms: float | None, tpot_ms: float | None) -> Record:
    route = request.route
    return Record(
        number=request.number,
        ending=ending,
        arrived_at_ms=request.arrived_ms,
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        prefill=route.prefill.id if route is not None and route.prefill is not None else None,
        decode=route.decode.id if route is not None else None,
        ttft_ms=ttft_ms,
        tpot_ms=tpot_ms,
        prefilled_at_ms=request.prefilled_ms,
        pulled_at_ms=request.pulled_ms,
        transferred_at_ms=request.transferred_ms,
        finished_at_ms=now_ms,
    )
