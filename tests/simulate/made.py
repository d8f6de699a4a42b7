"""Small deployments whose times can be worked out by hand."""

from collections.abc import Mapping
from typing import Any

from hpcserve.fabric import Link
from hpcserve.latency import LinearLatency
from hpcserve.nouns import Role, Slo
from hpcserve.simulate import Deployment, Flow, Scheduling, Worker

__all__ = ["EASY", "aggregated", "latency", "pairs", "worker"]

EASY = Slo(ttft_ms=1e9, tpot_ms=1e9)


def latency(*, kv_tokens: int | None = None, **figures: float) -> LinearLatency:
    """1 ms a prompt token, 10 ms a decode step, nothing else."""
    made = {
        "prefill_base_ms": 0.0,
        "prefill_ms_per_token": 1.0,
        "prefill_ms_per_token2": 0.0,
        "decode_base_ms": 10.0,
        "decode_ms_per_sequence": 0.0,
        "decode_ms_per_context_token": 0.0,
    } | figures
    return LinearLatency(**made, kv_tokens=kv_tokens, source="made for a test", kind="predicted")


def worker(name: str, role: Role, *, kv_tokens: int | None = None, **more: Any) -> Worker:
    figures = more.pop("figures", {})
    scheduling = Scheduling(**{"token_budget": 1000, **more.pop("scheduling", {})})
    return Worker(id=name, role=role, latency=latency(kv_tokens=kv_tokens, **figures), scheduling=scheduling, **more)


def aggregated(workers: int = 1, **more: Any) -> Deployment:
    return Deployment(
        workers=tuple(worker(f"aggregated-{number}", Role.AGGREGATED, **more) for number in range(workers))
    )


def pairs(
    prefills: int = 1,
    decodes: int = 1,
    *,
    gb_per_s: float = 1.0,
    uplink_gb_per_s: float = 1e6,
    prefill: Mapping[str, Any] | None = None,
    decode: Mapping[str, Any] | None = None,
    **more: Any,
) -> Deployment:
    """Every prefill worker may send to every decode worker, over its port, one uplink and the other's port.

    A token's KV is 1 MB, so that it takes 1 ms at 1 GB/s.
    """
    uplink = Link("uplink", uplink_gb_per_s, "made")
    return Deployment(
        workers=(
            *(worker(f"prefill-{number}", Role.PREFILL, **(prefill or {})) for number in range(prefills)),
            *(worker(f"decode-{number}", Role.DECODE, **(decode or {})) for number in range(decodes)),
        ),
        flows={
            (f"prefill-{here}", f"decode-{there}"): (
                Flow((Link(f"{here} out", gb_per_s, "made"), uplink, Link(f"{there} in", gb_per_s, "made")), 1.0),
            )
            for here in range(prefills)
            for there in range(decodes)
        },
        kv_bytes=lambda tokens, ranks: tokens * 1_000_000 // ranks,
        **more,
    )
