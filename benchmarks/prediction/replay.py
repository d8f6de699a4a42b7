"""One measured point and its prediction: the very arrivals and lengths of its runs, replayed by the simulator."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from hpcserve.errors import HpcserveError
from hpcserve.fabric import fabric_of
from hpcserve.latency import LatencyModel
from hpcserve.nouns import Plan, Role, Run
from hpcserve.report import is_good
from hpcserve.simulate import Arrival, Lengths, Outcome, Record, Trace, deployment_of, simulate

__all__ = ["Compared", "Point", "point_of", "replayed", "warm_ups_of"]

_MS_PER_S = 1e3
_APART_MS = 3_600_000.0
"""Between requests that came when the last had been answered, whatever that takes here: all of an `alone` run, and a
warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure, both ways, in one unit."""

    predicted: float
    measured: float

    @property
    def off(self) -> float:
        """By what share of the measured figure the prediction is off, with its sign."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One placement under one load, over all its repetitions."""

    placement: str
    request_rate: float | None
    """None: one request after another."""
    requests: int
    transfers: int
    transfer_ms: Compared
    """Of one handover, its wait not counted: the median alone, the mean at a rate, as a report has them."""
    met: float
    """Share of the handovers that the prediction puts on the links beside another one."""
    ttft_ms: Compared
    """Median."""
    attainment: Compared

    @property
    def load(self) -> str:
        """In words."""
        return "alone" if self.request_rate is None else f"{self.request_rate:g}/s"


def point_of(runs: Sequence[Run], model: LatencyModel) -> Point:
    """The point of the repetitions of one placement under one load, all valid, one prefill and one decode worker.

    Raises HpcserveError where a run has no timed transfers or no first token, and PlacementError where its site has no
    rate for a link.
    """
    simulated = [_simulated(run, model) for run in runs]
    moved = [record for outcome in simulated for record in outcome.records]
    records = [record for run, one in zip(runs, simulated, strict=True) for record in one.records[warm_ups_of(run) :]]
    samples = [(sample, run.service.slo) for run in runs for sample in run.samples]
    own_ms = [_own_ms(record) for record in moved]
    middle = median if runs[0].load.kind == "alone" else fmean
    ttfts = [sample.ttft_ms for sample, _ in samples if sample.ttft_ms is not None]
    predicted_ttfts = [record.ttft_ms for record in records if record.ttft_ms is not None]
    if not ttfts or not predicted_ttfts:
        raise HpcserveError(f"{runs[0].id}: no request has a first token", remedy="measure it again")
    return Point(
        placement=runs[0].placement,
        request_rate=runs[0].load.request_rate,
        requests=len(samples),
        transfers=sum(run.transfers.count for run in runs if run.transfers is not None),
        transfer_ms=Compared(predicted=middle(own_ms), measured=_measured_transfer_ms(runs)),
        met=sum(_met(outcome.records) for outcome in simulated) / len(moved),
        ttft_ms=Compared(predicted=median(predicted_ttfts), measured=median(ttfts)),
        attainment=Compared(
            predicted=sum(outcome.good for outcome in simulated) / len(records),
            measured=sum(is_good(*one) for one in samples) / len(samples),
        ),
    )


def warm_ups_of(run: Run) -> int:
    """Requests before the first sample whose transfers are counted with the run's: the load generator's warm-up."""
    return 0 if run.transfers is None else max(0, run.transfers.count - len(run.samples))


def replayed(run: Run) -> Trace:
    """The run's requests as they came, behind its warm-ups; those of an `alone` run so far apart that each is alone."""
    samples = sorted(run.samples, key=lambda sample: sample.start_s)
    alone, warm_ups = run.load.kind == "alone", warm_ups_of(run)
    starts_ms = [(sample.start_s - samples[0].start_s) * _MS_PER_S for sample in samples]
    if alone:
        starts_ms = [number * _APART_MS for number in range(len(samples))]
    first = samples[0]
    warm = [Arrival(number * _APART_MS, Lengths(first.input_tokens, first.output_tokens)) for number in range(warm_ups)]
    seen = [
        Arrival(
            warm_ups * _APART_MS + start_ms,
            Lengths(
                input_tokens=sample.input_tokens,
                output_tokens=sample.output_tokens,
                cached_tokens=min(run.load.cached_prefix_tokens, sample.input_tokens - 1),
            ),
        )
        for sample, start_ms in zip(samples, starts_ms, strict=True)
    ]
    return Trace(seen=(*warm, *seen))


def _simulated(run: Run, model: LatencyModel) -> Outcome:
    plan = _plan_of(run)
    bytes_per_token = plan.paths[0].kv_bytes / run.service.workload.input_tokens
    deployment = deployment_of(
        plan,
        fabric=fabric_of(run.site),
        latency=dict.fromkeys((Role.PREFILL, Role.DECODE), model),
        kv_bytes=lambda tokens, ranks: round(tokens * bytes_per_token / ranks),
    )
    return simulate(deployment, replayed(run), slo=run.service.slo, warm_up=warm_ups_of(run), keep_records=True)


def _plan_of(run: Run) -> Plan:
    if run.plan is None or not run.plan.paths:
        raise HpcserveError(f"{run.id} hands no KV over", remedy="give runs of disaggregated placements")
    return run.plan


def _own_ms(record: Record) -> float:
    if record.pulled_at_ms is None or record.transferred_at_ms is None:
        raise HpcserveError(f"the prediction served request {record.number} without a transfer: it is {record.ending}")
    return record.transferred_at_ms - record.pulled_at_ms


def _met(records: Sequence[Record]) -> int:
    """How many transfers were under way while another one was."""
    spans = sorted((record.pulled_at_ms or 0.0, record.transferred_at_ms or 0.0) for record in records)
    met: set[int] = set()
    latest = 0
    for index in range(1, len(spans)):
        if spans[index][0] < spans[latest][1]:
            met |= {latest, index}
        if spans[index][1] > spans[latest][1]:
            latest = index
    return len(met)


def _measured_transfer_ms(runs: Sequence[Run]) -> float:
    moved = [run.transfers for run in runs if run.transfers is not None and run.transfers.count]
    each = [ms for one in moved for ms in one.each_ms]
    if runs[0].load.kind == "alone" and each:
        return median(each)
    seconds, count = sum(one.seconds for one in moved), sum(one.count for one in moved)
    if not seconds:
        raise HpcserveError(f"{runs[0].id}: its transfers were not timed", remedy="measure it again")
    return seconds / count * _MS_PER_S
