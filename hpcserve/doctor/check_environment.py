"""Checks of what a process on a node inherits: variables, limits, memory that it may share."""

import ipaddress
from collections.abc import Iterator

from hpcserve.doctor.evidence import Evidence, Wanted
from hpcserve.doctor.fabric_words import RDMA_KINDS, TCP_INSTEAD, carries_rdma, may_use_rdma, port_rate
from hpcserve.doctor.finding import Said, failure, fine, not_applicable, warning
from hpcserve.nouns import NicKind

__all__ = ["inherited_transport", "loaded_modules", "locked_memory", "open_files", "proxies", "shared_memory"]

_PREFIXES = ("UCX_", "NCCL_", "NIXL_", "FI_", "GLOO_")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_UCX_MODULES = ("hpcx", "ucx")

_WORST_OPEN_FILES = 4096
"""A router holds two sockets a request, and 1,024 requests may be in flight; 4,096 leaves room for files."""

_LEAST_LOCKED_BYTES = 2**30
"""What a worker pins at the least: KV of one prompt of 8,192 tokens at 128 KiB a token, that of Llama 3.1 8B by its
config.json (2 x 32 layers x 8 KV heads x 128 x 2 bytes). Usual defaults are far below: 64 KiB, 8 MiB."""

_GIB = 2**30

_UNLIMITED = "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf, LimitMEMLOCK=infinity for slurmd"

_SHARED_BYTES = 160 * 2**20
"""vLLM's message queue between the ranks of a worker: 10 chunks of 16 MiB (VLLM_MQ_MAX_CHUNK_BYTES_MB)."""


def inherited_transport(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Variables of UCX, NCCL, NIXL, libfabric and Gloo that the site file does not set and that reach the engines."""
    set_for = _set_for(wanted)
    foreign = {
        name: value
        for name, value in sorted(seen.environment.items())
        if name.startswith(_PREFIXES) and not all(name in names for names in set_for.values())
    }
    transports = foreign.pop("UCX_TLS", None)
    # with libfabric NIXL makes no UCX context, so that UCX_TLS decides nothing about KV
    by_ucx = wanted.site.transport.backend == "ucx"
    bare = any(kind in RDMA_KINDS and "UCX_TLS" not in names for kind, names in set_for.items())
    if transports is not None and by_ucx and bare and not may_use_rdma(transports):
        yield failure(
            f"UCX_TLS={transports} is inherited and leaves no RDMA transport",
            why=f"{TCP_INSTEAD} {port_rate(wanted)}",
            remedy="unset it where it is set (shell start-up, modules), or set UCX_TLS under `transport` in the site",
        )
    elif transports is not None:
        foreign["UCX_TLS"] = transports
    if foreign:
        yield warning(
            "inherited: " + ", ".join(f"{name}={value}" for name, value in sorted(foreign.items())),
            why="every worker gets them, though the site file does not say so; what was measured may not hold",
            remedy="unset them, or write them under `transport` in the site file",
        )
    if not foreign and transports is None:
        yield fine("no variable of UCX, NCCL, NIXL, libfabric or Gloo is inherited")


def _set_for(wanted: Wanted) -> dict[NicKind, set[str]]:
    """By kind of this node's NICs, what a worker that is given NICs of that kind gets set, as engines are started."""
    transport = wanted.site.transport
    for_all = set(transport.ucx)
    for_all |= {"UCX_NET_DEVICES"} if transport.backend == "ucx" else set(transport.libfabric)
    for runtime in wanted.site.runtimes.values():
        for_all |= set(runtime.env)
    # a NIC without GPUs is given to no worker
    given = {nic.kind for nic in wanted.kind.nics if nic.gpus} or {nic.kind for nic in wanted.kind.nics}
    return {kind: for_all | set(transport.kinds.get(kind, {})) for kind in given}


def proxies(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Proxies that clients on this host would send requests for the router through."""
    lower = {name.lower(): value for name, value in seen.environment.items() if value}
    named = [name for name in _PROXIES if name in lower]
    if not named:
        yield fine("no proxy is set")
        return
    subnet = wanted.site.networks.control.subnet
    interface = wanted.site.networks.control.interface
    addresses = [
        address
        for each in seen.interfaces
        for address in each.addresses
        if each.name == interface or (subnet and ipaddress.ip_address(address) in ipaddress.ip_network(subnet))
    ]
    if addresses and all(_is_spared(address, lower.get("no_proxy", "")) for address in addresses):
        yield fine(f"{', '.join(named)} set, and no_proxy spares the control network")
        return
    yield warning(
        f"{', '.join(named)} set, and no_proxy does not spare {', '.join(addresses) or 'the control network'}",
        why="curl and the OpenAI client would ask the proxy for the router and fail; hpcserve itself asks none",
        remedy="add the control network's addresses to no_proxy",
    )


def _is_spared(address: str, no_proxy: str) -> bool:
    """Whether no_proxy names an address: as it is, by `*`, or by a network in CIDR form."""
    for entry in (word.strip() for word in no_proxy.split(",")):
        if entry in {"*", address}:
            return True
        if "/" in entry:
            try:
                if ipaddress.ip_address(address) in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                continue
    return False


def loaded_modules(seen: Evidence, _wanted: Wanted) -> Iterator[Said]:
    """A UCX of the cluster's modules, beside the one that NIXL brings."""
    loaded = [
        name
        for name in seen.environment.get("LOADEDMODULES", "").split(":")
        if name.lower().partition("/")[0] in _UCX_MODULES
    ]
    if not loaded:
        yield fine("no module with a UCX of its own is loaded")
        return
    yield warning(
        f"module {', '.join(loaded)} is loaded",
        why="it may put a second UCX into the engines, beside NIXL's: registering memory then hangs or fails",
        remedy="`module unload` it before submitting, or `module purge`",
    )


def locked_memory(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether a task may pin the memory that RDMA reads and writes.

    The kernel counts what a process pins against its limit (Linux, Documentation/infiniband/user_verbs, Memory
    pinning). A rank is a process, and its KV is at most what its GPU holds. It may be much less, and GPU memory that is
    registered as dma-buf is not counted (drivers/infiniband/core/umem_dmabuf.c): between the least and that nothing is
    certain.
    """
    limit = seen.locked_memory_bytes
    if not carries_rdma(wanted):
        yield not_applicable("no NIC of this node pins memory for RDMA")
    elif limit is None:
        yield fine("locked memory is unlimited")
    elif limit < _LEAST_LOCKED_BYTES:
        yield failure(
            f"locked memory is limited to {limit // 1024} KiB",
            why="UCX cannot register KV with the NIC (ENOMEM), and falls back to TCP or ends",
            remedy=_UNLIMITED,
        )
    elif limit < wanted.kind.gpu.memory_gib * _GIB:
        yield warning(
            f"locked memory is limited to {limit // 1024} KiB",
            why=f"KV that fills a GPU's {wanted.kind.gpu.memory_gib:g} GiB may not be registered with the NIC (ENOMEM)",
            remedy=_UNLIMITED,
        )
    else:
        yield fine(f"locked memory is limited to {limit // _GIB} GiB, as much as a GPU has or more")


def open_files(seen: Evidence, _wanted: Wanted) -> Iterator[Said]:
    """Whether a router may hold the sockets that it needs."""
    if seen.open_files is None or seen.open_files >= _WORST_OPEN_FILES:
        yield fine("enough files may be open at once")
        return
    yield warning(
        f"at most {seen.open_files} files may be open at once",
        why=f"requests are refused under load; {_WORST_OPEN_FILES} are enough for 1,024 requests in flight",
        remedy="raise the hard limit of open files (`nofile`) for Slurm's tasks",
    )


def shared_memory(seen: Evidence, wanted: Wanted) -> Iterator[Said]:
    """Whether the ranks of a worker have room in /dev/shm."""
    free = seen.shared_memory_free_bytes
    if free is None:
        yield failure(
            "there is no /dev/shm that can be written",
            why="the ranks of a worker, and engines on one node, talk by it",
            remedy="mount a tmpfs there, or give the container one",
        )
    elif wanted.kind.gpu.count > 1 and free < _SHARED_BYTES:
        yield warning(
            f"{free // 2**20} MiB free in /dev/shm",
            why=f"a worker with several ranks takes {_SHARED_BYTES // 2**20} MiB for its messages alone",
            remedy="remove what earlier jobs left there, or make it larger",
        )
    else:
        yield fine("shared memory has room")
