"""What is measured of each router; the figures of one repetition."""

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.router.exact import held_exact, look, warm
from benchmarks.router.machine import PREFILL_PORTS, Machine
from benchmarks.router.peers import Peer

__all__ = ["CASES", "Figures", "applies", "direct"]

Figures = dict[str, float]
_LARGE_BYTES = 32768
_SMALL_BYTES = 1024
_PROMPTS = 128
"""That the load has: `BODIES` in load.c."""
_NEW_PROMPTS = 64
"""Of 32 KiB so many take half of what the router keeps of tokenized text, so the second time all are there."""
_SETTLED_S = 0.5
"""After a run of new prompts: what the router still tokenizes belongs to it."""
_seeds = itertools.count((time.time_ns() // 1_000_000 + os.getpid()) % 1_000_000_000)
"""Of prompts that no router has had before, not in another run of the benchmark either."""
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


def _saturated(prompt_bytes: int, connections: int, *, messages: bool = False) -> Callable[[Machine, Peer], Figures]:
    """`messages`: hardly a prompt comes twice, but all of its messages have been there in others."""

    def measure(machine: Machine, peer: Peer) -> Figures:
        load: dict[str, Any] = {"connections": connections, "prompt_bytes": prompt_bytes}
        if messages and not peer.exact:  # whoever keeps messages has them now
            options = ("-o", str(_PROMPTS), "-m", str(next(_seeds)))
            _loaded(machine, peer, connections=8, prompt_bytes=prompt_bytes, options=options, seconds=120.0)
        with _known(machine, peer, prompt_bytes, messages=messages):
            if messages:
                load["options"] = ("-m", str(next(_seeds)))
            found, cpu_s = _loaded(machine, peer, **load, seconds=2.0)
        if peer.engines_port is not None:
            counts = machine.counts(peer.engines_port)
            legs = counts["prefill"] / max(counts["answers"], 1)
            if (legs > 0.9) != (peer.mode == "pd"):  # noqa: PLR2004 - nearly every request must go the way it should
                raise ValueError(f"{peer.name}: {counts}")
        return {"cap": found["all_requests"] / cpu_s, "per_s": found["requests"] / found["seconds"]}

    return measure


def _cold(prompt_bytes: int, rounds: int) -> Callable[[Machine, Peer], Figures]:
    """Prompts that nobody has sent before, at a pace at which each is tokenized; then the same ones again.

    What is new of them is their tokens, and the blocks that the engines then tell of. Raises ValueError unless the
    first time none of them was known, and the second time all were: each was tokenized.
    """

    def measure(machine: Machine, peer: Peer) -> Figures:
        kib = _NEW_PROMPTS * prompt_bytes / 1024
        cold_ms: list[float] = []
        again_ms: list[float] = []
        for _ in range(rounds):
            options = ("-o", str(_NEW_PROMPTS), "-n", str(next(_seeds)), "-f", str(machine.text))
            load: dict[str, Any] = {
                "connections": 4,
                "think_us": 20_000,
                "prompt_bytes": prompt_bytes,
                "options": options,
            }
            for figures, known in ((cold_ms, 0), (again_ms, _NEW_PROMPTS)):
                before = look(peer.port)
                _, cpu_s = _loaded(machine, peer, **load, seconds=120.0, settled_s=_SETTLED_S)
                held_exact(peer.port, before, known=known)
                figures.append(cpu_s * 1000 / kib)
        cold, again = sum(cold_ms) / rounds, sum(again_ms) / rounds
        return {"cpu_ms_per_kib": cold, "again_ms_per_kib": again, "new_ms_per_kib": cold - again}

    return measure


@contextlib.contextmanager
def _known(machine: Machine, peer: Peer, prompt_bytes: int = _SMALL_BYTES, *, messages: bool = False) -> Iterator[None]:
    """Of a router with exact knowledge: it has it before, and has used it throughout. Raises ValueError if not."""
    if not peer.exact:
        yield
        return
    warm(machine, peer.port, prompt_bytes, seeds=_seeds if messages else None)
    before = look(peer.port)
    yield
    held_exact(peer.port, before)


def _idle(machine: Machine, peer: Peer) -> Figures:
    without_ms = direct(machine, peer.mode)
    with _known(machine, peer):
        found = machine.load(peer.port, connections=1, seconds=1.2, tokens=4, stream=True, think_us=2000)
    return {"added_ms": _checked(found, peer)["ttft_us"][0] / 1000 - without_ms}


def _unpaced(machine: Machine, peer: Peer) -> Figures:
    with _known(machine, peer):
        found, cpu_s = _loaded(machine, peer, connections=64, seconds=1.6, tokens=128, stream=True)
    return {"cpu_s_per_million": cpu_s / found["all_tokens"] * 1e6, "rss_mb": machine.usage(peer.name)[1]}


def _paced(machine: Machine, peer: Peer) -> Figures:
    machine.set_pace(_PACE_US)
    try:
        with _known(machine, peer):
            found, cpu_s = _loaded(machine, peer, connections=256, seconds=4.0, tokens=100, stream=True)
    finally:
        machine.set_pace(0)
    return {"cpu_s_per_million": cpu_s / found["all_tokens"] * 1e6}


def _burst(machine: Machine, peer: Peer) -> Figures:
    """256 streams of 16 tokens that end together and begin together: the tail of TTFT."""
    machine.set_pace(_PACE_US)
    try:
        with _known(machine, peer):
            found = machine.load(peer.port, connections=256, seconds=1.5, tokens=16, stream=True)
    finally:
        machine.set_pace(0)
    p50_us, p99_us = _checked(found, peer)["ttft_us"]
    return {"ttft_p50_ms": p50_us / 1000, "ttft_p99_ms": p99_us / 1000}


def _loaded(machine: Machine, peer: Peer, *, settled_s: float = 0.0, **load: Any) -> tuple[dict[str, Any], float]:
    """What the load saw, and the CPU that the router spent on it, and in so many seconds after it."""
    if peer.engines_port is not None:
        machine.counts(peer.engines_port)
    else:  # its workers say something else
        load["options"] = ("-a", *load.get("options", ()))
    before_s, _ = machine.usage(peer.name)
    found = _checked(machine.load(peer.port, **load), peer)
    time.sleep(settled_s)
    return found, machine.usage(peer.name)[0] - before_s


def _checked(found: dict[str, Any], peer: Peer) -> dict[str, Any]:
    if found["errors"] or not found["requests"]:
        raise ValueError(f"{peer.name}: {found}")
    return found


CASES: dict[str, Callable[[Machine, Peer], Figures]] = {
    "1 KiB": _saturated(_SMALL_BYTES, 64),
    "32 KiB": _saturated(_LARGE_BYTES, 32),
    "idle": _idle,
    "unpaced": _unpaced,
    "paced": _paced,
    "burst": _burst,
    "messages 1 KiB": _saturated(_SMALL_BYTES, 64, messages=True),
    "messages 32 KiB": _saturated(_LARGE_BYTES, 32, messages=True),
    "cold 1 KiB": _cold(_SMALL_BYTES, 8),
    "cold 32 KiB": _cold(_LARGE_BYTES, 2),
}
_OF_WORKERS = ("1 KiB", "32 KiB", "messages 1 KiB", "messages 32 KiB")
"""Cases of a router with workers of its own: of others their time would be a part."""


def applies(case: str, peer: Peer) -> bool:
    """Whether this is measured of that router."""
    if case.startswith("cold"):
        return peer.exact
    if case.startswith("messages") and peer.mode != "pd":
        return False
    return peer.engines_port is not None or case in _OF_WORKERS
