"""Whether a run's numbers may be used. Silent success is the enemy: what cannot be shown to be sound is not."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles

from hpcserve.bench.host import BusyLimits
from hpcserve.nouns import Load, Sample, Slo, Transfers, Validity

__all__ = ["Evidence", "judge"]

_RATE_TOLERANCE = 0.10
_SHOWN_ERRORS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was seen of one run. Shares are of all cores of the generator's host."""

    load: Load
    slo: Slo
    samples: Sequence[Sample]
    transfers: Transfers | None
    """None where no worker pulls KV."""
    warm_ups: int = 0
    """Requests that the counters saw and the samples do not hold."""
    cached_tokens: int = 0
    """Prompt tokens that a decode worker had already, and did not pull."""
    kv_bytes_per_token: float | None = None
    """None where no KV moves."""
    block_tokens: int = 1
    generations_before: Mapping[str, str] = field(default_factory=dict)
    generations_after: Mapping[str, str] = field(default_factory=dict)
    others_before: float = 0.0
    others_during: float = 0.0
    others_after: float = 0.0
    steal: float = 0.0
    dispatch_delays_ms: Sequence[float] = ()
    achieved_rate: float | None = None
    failures: Sequence[str] = ()
    """Reasons found before judging, such as a load generator that ended badly."""


def judge(evidence: Evidence, limits: BusyLimits) -> Validity:
    """Valid, or invalid with every reason that holds.

    - fewer requests were recorded than were to be sent, a request failed, or no output token came;
    - where KV should move: fewer transfers than good answers, a failed transfer, a counter that went backwards, bytes
      that differ from tokens x bytes per token by more than one block a request (also where decode workers had the KV
      already: the workload says that it moves); alone: not one transfer a request;
    - a worker was another one at the end than at the start;
    - requests came at a rate that is more than 10 % off the one that was to be offered;
    - the host was too busy (see `BusyLimits`).
    """
    reasons = (
        *evidence.failures,
        *_of_requests(evidence),
        *_of_transfers(evidence),
        *_of_workers(evidence),
        *_of_host(evidence, limits),
    )
    return Validity(valid=not reasons, reasons=tuple(" ".join(reason.split()) for reason in reasons))


def _of_requests(evidence: Evidence) -> Iterator[str]:
    failed = [sample for sample in evidence.samples if sample.error or sample.ttft_ms is None]
    if len(evidence.samples) != evidence.load.requests:
        yield f"{len(evidence.samples)} requests were recorded of {evidence.load.requests}"
    if failed:
        errors = sorted({sample.error or "no token came" for sample in failed})
        yield f"{len(failed)} requests failed: {'; '.join(errors[:_SHOWN_ERRORS])}"
    if not sum(sample.output_tokens for sample in evidence.samples):
        yield "no output token came"
    offered, achieved = evidence.load.request_rate, evidence.achieved_rate
    if offered is not None and achieved is not None and abs(achieved / offered - 1) > _RATE_TOLERANCE:
        yield f"requests came at {achieved:.3g}/s, {offered:g}/s were to be offered"


def _of_transfers(evidence: Evidence) -> Iterator[str]:
    moved, per_token = evidence.transfers, evidence.kv_bytes_per_token
    if per_token is None:
        return
    if moved is None:
        yield "KV should have moved, and no worker counts transfers"
        return
    good = [sample for sample in evidence.samples if not sample.error]
    if moved.count < len(good):
        yield f"{moved.count} KV transfers for {len(good)} answered requests: some were served without a handoff"
    if evidence.load.kind == "alone" and moved.count != len(evidence.samples):
        yield f"{moved.count} KV transfers for {len(evidence.samples)} requests, one each was wanted"
    if moved.failed:
        yield f"{moved.failed} KV transfers failed"
    tokens = sum(sample.input_tokens for sample in good) + evidence.warm_ups * evidence.load.input_tokens
    slack_tokens = evidence.block_tokens * max(len(good) + evidence.warm_ups, 1)
    if evidence.cached_tokens > slack_tokens:
        yield (
            f"decode workers had {evidence.cached_tokens} of {tokens} prompt tokens in their own prefix cache, "
            "and that KV did not move: give the decode pool `args: [--no-enable-prefix-caching]`"
        )
    elif abs(moved.bytes - tokens * per_token) > slack_tokens * per_token:
        yield f"{moved.bytes} bytes of KV moved, {tokens * per_token:.0f} were due for {tokens} tokens"


def _of_workers(evidence: Evidence) -> Iterator[str]:
    names = sorted(evidence.generations_before.keys() | evidence.generations_after.keys())
    changed = [name for name in names if evidence.generations_before.get(name) != evidence.generations_after.get(name)]
    if changed:
        yield f"workers were started again during the run: {', '.join(changed)}"


def _of_host(evidence: Evidence, limits: BusyLimits) -> Iterator[str]:
    others = (("before", evidence.others_before), ("after", evidence.others_after))
    if evidence.others_during > limits.others_share:
        yield f"the machine was too busy to measure: others used {evidence.others_during:.0%} of its cores in the run"
    for when, share in others:
        if share > limits.others_share:
            yield f"the machine was too busy to measure: {share:.0%} of its cores were in use {when} the run"
    if evidence.steal > limits.steal_share:
        yield f"the machine was too busy to measure: {evidence.steal:.0%} of its time was given to others"
    late_ms = _p95(evidence.dispatch_delays_ms)
    if late_ms > limits.dispatch_share * evidence.slo.ttft_ms:
        yield f"the machine was too busy to measure: requests were sent {late_ms:.0f} ms late (95th percentile)"


def _p95(values: Sequence[float]) -> float:
    if len(values) < 2:  # noqa: PLR2004 - quantiles need two
        return max(values, default=0.0)
    return quantiles(values, n=20, method="inclusive")[-1]
