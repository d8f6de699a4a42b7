"""Every number behind a verdict, with its unit, its kind and its source."""

from collections.abc import Iterable
from typing import Literal

from hpcserve.nouns import Evidence, PathCost, Service
from hpcserve.placement.verdict_rules import SHARE_OF_PREFILL, Situation

__all__ = ["Number", "evidence_of", "numbers"]

Number = tuple[str, float | None, str, str]
"""What it is, its value (None: not known, and left out), unit, source."""


def numbers(
    kind: Literal["asked", "measured", "predicted", "simulated"], found: Iterable[Number]
) -> tuple[Evidence, ...]:
    """Numbers of one kind, those that are known."""
    return tuple(
        Evidence(what=what, value=value, unit=unit, kind=kind, source=source)
        for what, value, unit, source in found
        if value is not None
    )


def evidence_of(
    service: Service, slowest: PathCost, case: Situation, *, prefill_source: str | None = None
) -> tuple[Evidence, ...]:
    """The numbers of one typical request; `prefill_source`: a latency model, where not the service's speed is used."""
    load, slo = service.workload, service.slo
    asked: list[Number] = [
        ("input", load.input_tokens, "tokens", "workload.input_tokens"),
        ("input that is cached", load.cached_prefix_tokens, "tokens", "workload.cached_prefix_tokens"),
        ("output", load.output_tokens, "tokens", "workload.output_tokens"),
        ("load", load.requests_per_s, "requests/s", "workload.requests_per_s"),
        ("TTFT limit", slo.ttft_ms, "ms", "slo.ttft_ms"),
        ("TPOT limit", slo.tpot_ms, "ms", "slo.tpot_ms"),
        ("requests that must meet both", slo.attainment, "share", "slo.attainment"),
    ]
    speed = None if prefill_source else load.prefill_tokens_per_s
    path = f"{slowest.prefill} to {slowest.decode}"
    predicted: list[Number] = [
        (f"rate {path}, the slowest path", slowest.gb_per_s, "GB/s", slowest.source),
        ("KV of one request", slowest.kv_bytes, "bytes", "the model's config.json, see `hpcserve model show`"),
        ("transfer", slowest.transfer_ms, "ms", "KV bytes / rate"),
        ("prefill", case.prefill_ms, "ms", prefill_source or "(input - cached) / prefill speed"),
        ("transfer / prefill", case.share, "share", f"under {SHARE_OF_PREFILL:g} it hardly shows"),
        ("decode step of one sequence", case.decode_step_ms, "ms", "latency model"),
        ("longest step with prompts beside decode", case.mixed_step_ms, "ms", "latency model"),
    ]
    return (
        *numbers("asked", asked),
        *numbers("measured", [("prefill speed of one worker", speed, "tokens/s", "workload.prefill_tokens_per_s")]),
        *numbers("predicted", predicted),
    )
