"""What is measured of each router; the figures of one repetition."""

from collections.abc import Callable
from typing import Any

from benchmarks.router.machine import PREFILL_PORTS, Machine
from benchmarks.router.peers import Peer

__all__ = ["CASES", "Figures", "direct"]

Figures = dict[str, float]
_PACE_US = 20_000
_AS_PREFILL = ',"kv_transfer_params":{"do_remote_decode":true}'


def direct(machine: Machine, mode: str) -> float:
    """Milliseconds to the first token without a router: the decode leg, and before it the prefill leg in P/D."""
    port = PREFILL_PORTS[0]
    found = machine.load(port, connections=1, seconds=1.0, think_us=2000, tokens=4, stream=True)
    first_us: float = found["ttft_us"][0]
    if mode == "pd":
        found = machine.load(port, connections=1, seconds=1.0, think_us=2000, tokens=1, extra=_AS_PREFILL)
        first_us += found["ttft_us"][0]
    return first_us / 1000


def _saturated(prompt_bytes: int, connections: int) -> Callable[[Machine, Peer], Figures]:
    def measure(machine: Machine, peer: Peer) -> Figures:
        found, cpu_s = _loaded(machine, peer, connections=connections, seconds=2.0, prompt_bytes=prompt_bytes)
        counts = machine.counts()
        legs = counts["prefill"] / max(counts["answers"], 1)
        if (legs > 0.9) != (peer.mode == "pd"):  # noqa: PLR2004 - nearly every request must have gone the way it should
            raise ValueError(f"{peer.name}: {counts}")
        return {"cap": found["all_requests"] / cpu_s, "per_s": found["requests"] / found["seconds"]}

    return measure


def _idle(machine: Machine, peer: Peer) -> Figures:
    without_ms = direct(machine, peer.mode)
    found = machine.load(peer.port, connections=1, seconds=1.2, tokens=4, stream=True, think_us=2000)
    return {"added_ms": _checked(found, peer)["ttft_us"][0] / 1000 - without_ms}


def _unpaced(machine: Machine, peer: Peer) -> Figures:
    found, cpu_s = _loaded(machine, peer, connections=64, seconds=1.6, tokens=128, stream=True)
    return {"cpu_s_per_million": cpu_s / found["all_tokens"] * 1e6, "rss_mb": machine.usage(peer.name)[1]}


def _paced(machine: Machine, peer: Peer) -> Figures:
    machine.set_pace(_PACE_US)
    try:
        found, cpu_s = _loaded(machine, peer, connections=256, seconds=4.0, tokens=100, stream=True)
    finally:
        machine.set_pace(0)
    return {"cpu_s_per_million": cpu_s / found["all_tokens"] * 1e6}


def _burst(machine: Machine, peer: Peer) -> Figures:
    """256 streams of 16 tokens that end together and begin together: the tail of TTFT."""
    machine.set_pace(_PACE_US)
    try:
        found = machine.load(peer.port, connections=256, seconds=1.5, tokens=16, stream=True)
    finally:
        machine.set_pace(0)
    p50_us, p99_us = _checked(found, peer)["ttft_us"]
    return {"ttft_p50_ms": p50_us / 1000, "ttft_p99_ms": p99_us / 1000}


def _loaded(machine: Machine, peer: Peer, **load: Any) -> tuple[dict[str, Any], float]:
    """What the load saw, and the CPU that the router spent on it."""
    machine.counts()
    before_s, _ = machine.usage(peer.name)
    found = _checked(machine.load(peer.port, **load), peer)
    return found, machine.usage(peer.name)[0] - before_s


def _checked(found: dict[str, Any], peer: Peer) -> dict[str, Any]:
    if found["errors"] or not found["requests"]:
        raise ValueError(f"{peer.name}: {found}")
    return found


CASES: dict[str, Callable[[Machine, Peer], Figures]] = {
    "1 KiB": _saturated(1024, 64),
    "32 KiB": _saturated(32768, 32),
    "idle": _idle,
    "unpaced": _unpaced,
    "paced": _paced,
    "burst": _burst,
}
