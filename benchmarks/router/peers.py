"""The routers that are compared and how each is started, as its own documentation says."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.router.machine import DECODE_PORTS, PLAIN_PORTS, PREFILL_PORTS

__all__ = ["OURS", "Peer", "peers_of"]

OURS = {"pd": "hpcserve P/D", "plain": "hpcserve plain"}
_PORTS = iter(range(28101, 28200))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One router under one policy."""

    name: str
    mode: Literal["pd", "plain"]
    port: int
    argv: tuple[str, ...]


def peers_of(jobs: dict[str, Path], rivals: Path | None) -> list[Peer]:
    """Ours, by job directory of each mode, and vLLM's router where `rivals` is the `bin` of an environment with it."""
    found = [_ours(mode, jobs[mode]) for mode in ("pd", "plain")]
    if rivals is None or not (rivals / "vllm-router").exists():
        return found
    plain = ("--worker-urls", *_urls(PLAIN_PORTS))
    split = [
        "--vllm-pd-disaggregation",
        *(word for url in _urls(PREFILL_PORTS) for word in ("--prefill", url)),
        *(word for url in _urls(DECODE_PORTS) for word in ("--decode", url)),
    ]
    found.append(_vllm_router(rivals, "vllm-router P/D", "pd", ("--policy", "round_robin", *split)))
    found.append(_vllm_router(rivals, "vllm-router round robin", "plain", ("--policy", "round_robin", *plain)))
    found.append(_vllm_router(rivals, "vllm-router cache_aware", "plain", ("--policy", "cache_aware", *plain)))
    return found


def _urls(ports: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"http://127.0.0.1:{port}" for port in ports)


def _ours(mode: Literal["pd", "plain"], job: Path) -> Peer:
    port = next(_PORTS)
    words = ("--job", str(job), "--node", "node01", "--host", "127.0.0.1", "--port", str(port))
    return Peer(name=OURS[mode], mode=mode, port=port, argv=(sys.executable, "-m", "hpcserve.router", *words))


def _vllm_router(folder: Path, name: str, mode: Literal["pd", "plain"], policy: tuple[str, ...]) -> Peer:
    """https://github.com/vllm-project/router, as installed from PyPI."""
    port = next(_PORTS)
    words = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(port + 100))
    argv = (str(folder / "vllm-router"), *words, "--log-level", "warning", *policy)
    return Peer(name=name, mode=mode, port=port, argv=argv)
