"""Points to measure, and the `Run` that each one becomes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from hpcserve.nouns import Load, Plan, Run, Sample, Service, Site, Transfers, Validity

__all__ = ["Point", "load_of", "now_utc", "run_of", "unrealised_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One stretch to measure. `environment` is what the caller knows beyond the host, kept with the run."""

    id: str
    sweep: str
    placement: str
    repetition: int
    kind: Literal["alone", "rate"]
    request_rate: float | None
    """Requests/s; None for `alone`."""
    requests: int
    seed: int
    environment: Mapping[str, str]


def now_utc() -> str:
    """The time, to the second, as records carry it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def load_of(point: Point, service: Service, *, generator: str, argv: tuple[str, ...] = ()) -> Load:
    """What the point offers: prompts of the service's workload, all distinct when alone."""
    workload = service.workload
    return Load(
        kind=point.kind,
        request_rate=point.request_rate,
        requests=point.requests,
        input_tokens=workload.input_tokens,
        cached_prefix_tokens=workload.cached_prefix_tokens if point.kind == "rate" else 0,
        output_tokens=workload.output_tokens,
        seed=point.seed,
        generator=generator,
        argv=argv,
    )


def run_of(
    *,
    point: Point,
    service: Service,
    site: Site,
    plan: Plan | None,
    load: Load,
    simulated: bool,
    started_utc: str,
    environment: Mapping[str, str],
    samples: tuple[Sample, ...],
    duration_s: float,
    transfers: Transfers | None,
    predicted_transfer_ms: float | None,
    validity: Validity,
) -> Run:
    """The run, whole: whoever reads it needs no other file."""
    return Run(
        id=point.id,
        sweep=point.sweep,
        placement=point.placement,
        repetition=point.repetition,
        started_utc=started_utc,
        ended_utc=now_utc(),
        simulated=simulated,
        plan=plan,
        service=service,
        site=site,
        environment={**environment, **point.environment},
        load=load,
        samples=samples,
        duration_s=duration_s,
        transfers=transfers,
        predicted_transfer_ms=predicted_transfer_ms,
        validity=validity,
    )


def unrealised_run(
    *, point: Point, service: Service, site: Site, plan: Plan | None, simulated: bool, reason: str
) -> Run:
    """The run of a point that could not be measured at all: it says why, and has no number."""
    return run_of(
        point=point,
        service=service,
        site=site,
        plan=plan,
        load=load_of(point, service, generator="none"),
        simulated=simulated,
        started_utc=now_utc(),
        environment={},
        samples=(),
        duration_s=0.0,
        transfers=None,
        predicted_transfer_ms=None,
        validity=Validity(valid=False, reasons=(" ".join(reason.split()) or "no reason was given",)),
    )
