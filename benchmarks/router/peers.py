"""The routers that are compared and how each is started, as its own documentation says."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from benchmarks.router.machine import DECODE_PORTS, ENGINES, PLAIN_PORTS, PREFILL_PORTS, TELLING_ENGINES

__all__ = ["DYNAMO", "EXACT", "OURS", "Peer", "dynamo", "exact", "peers_of"]

OURS = {"pd": "hpcserve P/D", "plain": "hpcserve plain"}
EXACT = "hpcserve P/D exact"
DYNAMO = "Dynamo KV P/D"
_PORTS = iter(range(28101, 28200))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One router under one policy."""

    name: str
    mode: Literal["pd", "plain"]
    port: int
    argv: tuple[str, ...]
    engines_port: int | None = ENGINES[0]
    """One port of the fake engines that it is before; None: it has workers of its own."""
    exact: bool = False
    """Ours with `router.kv: events`: that it is in that mode throughout is seen to."""
    beside: tuple[tuple[str, ...], ...] = ()
    """Processes that must run beside it, and are not counted as its own."""
    variables: Mapping[str, str] = field(default_factory=dict)


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


def exact(job: Path) -> Peer:
    """Ours with exact KV knowledge, before the engines that tell of their KV."""
    port = next(_PORTS)
    return Peer(name=EXACT, mode="pd", port=port, argv=_argv(job, port), engines_port=TELLING_ENGINES[0], exact=True)


def dynamo(python: Path, model: Path, work: Path) -> Peer:
    """https://github.com/ai-dynamo/dynamo: its frontend with the KV router, two mockers of each role as workers.

    It tokenizes prompts and speaks to workers by a protocol of its own, so it cannot be before the fake engines.
    """
    port = next(_PORTS)
    planes = ("--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq")
    mocker = (str(python), "-m", "dynamo.mocker", "--model-path", str(model), "--model-name", "m", "--num-workers", "2")
    quick = ("--block-size", "16", "--speedup-ratio", "100000", "--kv-transfer-bandwidth", "0")
    frontend = (str(python), "-m", "dynamo.frontend", "--http-host", "127.0.0.1", "--http-port", str(port))
    hosts = ("DYN_TCP_RPC_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_EVENT_PLANE_HOST", "DYN_HTTP_RPC_HOST")
    (work / "dynamo").mkdir(exist_ok=True)
    return Peer(
        name=DYNAMO,
        mode="pd",
        port=port,
        argv=(*frontend, "--router-mode", "kv", *planes),
        engines_port=None,
        beside=tuple((*mocker, *quick, "--disaggregation-mode", role, *planes) for role in ("prefill", "decode")),
        variables={
            **dict.fromkeys(hosts, "127.0.0.1"),
            "DYN_FILE_KV": str(work / "dynamo"),
            "DYN_LOG": "error",
            "DYN_SELF_HOST_METADATA": "0",
            "HF_HUB_OFFLINE": "1",
        },
    )


def _urls(ports: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"http://127.0.0.1:{port}" for port in ports)


def _ours(mode: Literal["pd", "plain"], job: Path) -> Peer:
    port = next(_PORTS)
    return Peer(name=OURS[mode], mode=mode, port=port, argv=_argv(job, port))


def _argv(job: Path, port: int) -> tuple[str, ...]:
    words = ("--job", str(job), "--node", "node01", "--host", "127.0.0.1", "--port", str(port))
    return (sys.executable, "-m", "hpcserve.router", *words)


def _vllm_router(folder: Path, name: str, mode: Literal["pd", "plain"], policy: tuple[str, ...]) -> Peer:
    """https://github.com/vllm-project/router, as installed from PyPI."""
    port = next(_PORTS)
    words = ("--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(port + 100))
    argv = (str(folder / "vllm-router"), *words, "--log-level", "warning", *policy)
    return Peer(name=name, mode=mode, port=port, argv=argv)
