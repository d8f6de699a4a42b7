"""All evidence of this host. In: what the site file says of it. Out: `Evidence`. May touch: files, commands, ports."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hpcserve.doctor.command import run_command
from hpcserve.doctor.evidence import EngineSeen, Evidence, Wanted
from hpcserve.doctor.fabric_words import has_gpus
from hpcserve.doctor.look_at_host import (
    free_ports,
    host_facts,
    interfaces_of,
    kernel_facts,
    look_at_disks,
    rdma_ports,
    text_of,
)
from hpcserve.doctor.nvidia_text import GPU_QUERY, bridges_with_acs, fabric_seen, gpus_seen, nvlinks_seen
from hpcserve.errors import InputError
from hpcserve.nouns import Site

__all__ = ["look_at_engine", "look_at_login", "look_at_node", "with_disks"]

_UCX = "UCX"
_PROBE = Path(__file__).with_name("engine_probe.py")
_QUICK_S = 2.5
"""Of the gate's three seconds. nvidia-smi without persistence mode takes longer: it wakes every GPU first."""
_UNHURRIED_S = 30.0


def look_at_node(wanted: Wanted, *, environment: Mapping[str, str], quick: bool) -> Evidence:
    """What this host is, without its engines and directories; `quick` leaves out what takes more than a second."""
    limit_s = _QUICK_S if quick else _UNHURRIED_S
    gpus = _gpus(limit_s=limit_s, quick=quick) if has_gpus(wanted) else _NO_GPUS
    return _evidence(
        wanted.site,
        environment=environment,
        rdma=rdma_ports(),
        # an outer process of a container may not show PCI bridges; lspci of a large node takes some seconds
        bridges_with_acs=() if quick or not has_gpus(wanted) else _bridges(),
        **gpus,
    )


def look_at_login(site: Site, *, environment: Mapping[str, str]) -> Evidence:
    """What the login node is, as far as jobs are submitted from it and clients run on it."""
    seen = _evidence(site, environment=environment, rdma=(), bridges_with_acs=(), **_NO_GPUS)
    return with_disks(seen, site)


def with_disks(seen: Evidence, site: Site, extra: Mapping[str, tuple[str, bool]] | None = None) -> Evidence:
    """The same with the directories of the site; `extra` are further ones."""
    named = {
        "paths.jobs": (site.paths.jobs, True),
        "paths.cache": (site.paths.cache, True),
        "paths.models": (site.paths.models, False),
    }
    return replace(seen, disks=look_at_disks({**named, **(extra or {})}))


def look_at_engine(name: str, wanted: Wanted, *, script: Path, timeout_s: float) -> EngineSeen:
    """What the probe prints when it runs inside a runtime, with the settings and devices that workers are given."""
    transport = wanted.site.transport
    backend = transport.backend.upper()
    settings = {**transport.ucx, **transport.libfabric}
    for kind in {nic.kind for nic in wanted.kind.nics}:
        settings |= transport.kinds.get(kind, {})
    if backend == _UCX:
        settings["UCX_NET_DEVICES"] = ",".join(nic.name for nic in wanted.kind.nics)
    # The job directory's script enters the runtime, which may be a container that sees no other file of ours: the
    # program goes along as text.
    ran = run_command(
        ("bash", str(script), "python", "-c", text_of(_PROBE), backend),
        timeout_s=timeout_s,
        environment={**os.environ, **settings},
    )
    # UCX writes its log to stdout (UCX_LOG_FILE), before the probe's line and perhaps after it
    lines = ran.output.strip().splitlines()
    last = next((line for line in reversed(lines) if line.startswith("{")), lines[-1] if lines else "")
    try:
        said = json.loads(last)
        if said.get("backend_trouble"):
            said["backend_trouble"] += _words_of_ucx(f"{ran.output}\n{ran.complaints}")
        return EngineSeen(runtime=name, **{**said, **_tuples(said)})
    except (ValueError, TypeError):
        return EngineSeen(runtime=name, trouble=ran.trouble or f"the probe said {last[:200]!r}", late=ran.late)


def _words_of_ucx(complaints: str) -> str:
    """The last error or warning of UCX, which NIXL's own error leaves out; empty where there is none."""
    lines = [line for line in complaints.splitlines() if "UCX" in line and ("ERROR" in line or "WARN" in line)]
    lines = [line for line in lines if "ERROR" in line] or lines
    return f" ({lines[-1].partition('UCX')[2].strip()})" if lines else ""


def _tuples(said: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) for name, value in said.items() if isinstance(value, list)}


_NO_GPUS: dict[str, Any] = {"gpus": (), "gpu_trouble": "", "gpus_unseen": "", "nvlinks": None, "nvlink_fabric": ()}


def _gpus(*, limit_s: float, quick: bool) -> dict[str, Any]:
    asked = run_command(("nvidia-smi", f"--query-gpu={GPU_QUERY}", "--format=csv,noheader,nounits"), timeout_s=limit_s)
    if asked.late:
        return {**_NO_GPUS, "gpus_unseen": asked.trouble, "nvlink_fabric": None}
    seen: dict[str, Any] = {**_NO_GPUS, "gpus": gpus_seen(asked.output), "gpu_trouble": asked.trouble}
    if quick or asked.trouble:
        return seen
    matrix = run_command(("nvidia-smi", "topo", "-m"), timeout_s=limit_s)
    details = run_command(("nvidia-smi", "-q"), timeout_s=limit_s)
    return {
        **seen,
        "nvlinks": None if matrix.trouble else nvlinks_seen(matrix.output),
        "nvlink_fabric": None if details.late else fabric_seen(details.output),
    }


def _bridges() -> tuple[str, ...] | None:
    asked = run_command(("lspci", "-vvv"), timeout_s=_UNHURRIED_S)
    return bridges_with_acs(asked.output) if asked.output else None


def _evidence(site: Site, *, environment: Mapping[str, str], **others: Any) -> Evidence:
    described = run_command(("ip", "-json", "address", "show"), timeout_s=_QUICK_S)
    unseen = described.trouble
    try:
        interfaces = interfaces_of(described.output or "[]")
    except InputError as error:
        interfaces, unseen = (), f"ip printed {error.mistakes[0].found}"
    names = {site.networks.control.interface, site.networks.data.interface}
    addresses = [(one.name in names, address) for one in interfaces for address in one.addresses]
    tried, free = free_ports(address for _, address in sorted(addresses, key=lambda pair: not pair[0]))
    return Evidence(
        **host_facts(environment),
        **kernel_facts(),
        **others,
        interfaces=interfaces,
        interfaces_unseen="" if interfaces else unseen,
        ports_tried=tried,
        ports_free=free,
        disks=(),
    )
