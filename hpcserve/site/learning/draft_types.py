"""Node types of a draft: what nodes of the same hardware are, as far as Slurm and tools that ran on one of them say."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hpcserve.site.learning.facts import Facts, KnownNode, NicFacts, ProbeFacts
from hpcserve.site.learning.leaves import Branch, Gap, Items, Known, LearntRate, Node

__all__ = ["GBIT_PER_GB", "named", "offered_nics", "or_gap", "type_draft", "types_of"]

GBIT_PER_GB = 8
_MIB_PER_GIB = 1024
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


def named(item: Mapping[str, Any]) -> str:
    """The label of things that have a `name`."""
    return str(item.get("name"))


def types_of(nodes: Mapping[str, KnownNode], probes: Mapping[str, ProbeFacts]) -> dict[str, tuple[KnownNode, ...]]:
    """Nodes of the same hardware together, under a name made of it."""
    alike: dict[tuple[Any, ...], list[KnownNode]] = {}
    for node in nodes.values():
        alike.setdefault((node.gres_type, node.gpus, node.cores, node.memory_mib), []).append(node)
    types: dict[str, tuple[KnownNode, ...]] = {}
    for members in alike.values():
        base = _type_name(members, probes)
        name, count = base, 2
        while name in types:
            name, count = f"{base}-{count}", count + 1
        types[name] = tuple(members)
    return types


def _type_name(members: list[KnownNode], probes: Mapping[str, ProbeFacts]) -> str:
    first = members[0]
    models = [probes[node.host].gpu_model for node in members if node.host in probes]
    kind = first.gres_type or next((model for model in models if model), None)
    if kind is not None and first.gpus:
        return f"{_NOT_IN_NAMES.sub('-', kind.lower()).strip('-')}-x{first.gpus}"
    if first.gpus:
        return f"gpu-x{first.gpus}"
    return "node" if first.cores is None else f"node-{first.cores}c"


def type_draft(members: tuple[KnownNode, ...], facts: Facts, notes: list[str]) -> Branch:
    """One node type, drawn after the first of its nodes whose tools were asked; others that differ add to `notes`."""
    first, probe = members[0], _probe_of(members, facts)
    on = f" ({probe.host})" if probe else ""
    branch: dict[str, Node] = {
        "cores": or_gap(first.cores, "Slurm", "CPUTot of `scontrol show node`"),
        "memory_gib": or_gap(_gib(first.memory_mib), "Slurm", "RealMemory of `scontrol show node`, in GiB"),
        "gpu": _gpu(first, probe),
    }
    nics = probe.nics if probe else ()
    if nics:
        branch["nics"] = Items(
            label=named, items={nic.name: _nic(nic, gpus=_count(first, probe)) for nic in nics}, whole=False
        )
    else:
        seen = f"; up are {', '.join(probe.interfaces)}" if probe and probe.interfaces else ""
        seen = f"; import `ibstat` of {probe.host} too" if probe and probe.devices else seen
        branch["nics"] = Gap(
            needed="the ports that may carry KV: `ucx_info -d` names them, `nvidia-smi topo -m` which GPUs are near"
            + seen
        )
    if probe and probe.islands:
        by = f"not told by nvidia-smi topo -m{on}: it counts NVLinks and knows no rate; vendor, or `site measure`"
        branch["nvlink"] = Items(
            label=_islands_label,
            items={
                ",".join(map(str, island)): {
                    "gpus": Known(value=list(island), source="nvidia-smi topo -m"),
                    "rate": LearntRate(nominal_gb_per_s=None, source=by),
                }
                for island in probe.islands
            },
        )
    pcie = probe.pcie_gb_per_s if probe else None
    branch["host_path"] = LearntRate(
        nominal_gb_per_s=pcie,
        source=f"PCIe slots of the GPUs by nvidia-smi{on}" if pcie else "no tool prints it; vendor, or `site measure`",
    )
    notes += _other_probes(members, probe, facts.probes)
    return branch


def offered_nics(members: tuple[KnownNode, ...], facts: Facts) -> dict[str, Branch]:
    """NICs of a node type, by name, that carry KV only where the admin says so."""
    probe = _probe_of(members, facts)
    return {nic.name: _nic(nic, gpus=0) for nic in probe.offered} if probe else {}


def _probe_of(members: tuple[KnownNode, ...], facts: Facts) -> ProbeFacts | None:
    return next((facts.probes[node.host] for node in members if node.host in facts.probes), None)


def _other_probes(
    members: tuple[KnownNode, ...], first: ProbeFacts | None, probes: Mapping[str, ProbeFacts]
) -> Iterator[str]:
    """Nodes that look the same to Slurm and not to tools that ran on them."""
    for node in members:
        other = probes.get(node.host)
        if first is None or other is None or other is first:
            continue
        if [nic.name for nic in other.nics] != [nic.name for nic in first.nics] or (
            other.gpu_model,
            other.gpu_count,
            other.islands,
        ) != (first.gpu_model, first.gpu_count, first.islands):
            yield (
                f"{other.host} and {first.host} look the same to Slurm and have different GPUs, NVLinks or NICs;"
                f" the type is drawn after {first.host}"
            )


def _count(node: KnownNode, probe: ProbeFacts | None) -> int | None:
    return (probe.gpu_count if probe else None) or node.gpus


def _gpu(node: KnownNode, probe: ProbeFacts | None) -> Branch:
    hint = f", GRES calls it {node.gres_type}" if node.gres_type else ""
    branch: dict[str, Node] = {
        "model": or_gap(
            probe.gpu_model if probe else None, "nvidia-smi", f"as nvidia-smi -L says{hint}; `cpu` for cores"
        ),
        "count": or_gap(_count(node, probe) or None, "Slurm", "GPUs of a node: Gres of `scontrol show node`"),
        "memory_gib": or_gap(
            _gib(probe.gpu_memory_mib if probe else None), "nvidia-smi", "of each GPU: `nvidia-smi -q`, in GiB"
        ),
    }
    if node.gres_type:
        branch["gres"] = Known(value=node.gres_type, source="Slurm")
    if probe and probe.gpu_numa is not None:
        branch["numa"] = Known(value=list(probe.gpu_numa), source="nvidia-smi topo -m")
    if probe and probe.gpu_cpus is not None:
        branch["cpus"] = Known(value=list(probe.gpu_cpus), source="nvidia-smi topo -m")
    return branch


def _nic(nic: NicFacts, *, gpus: int | None) -> Branch:
    near = tuple(range(gpus or 0)) if nic.gpus is None else nic.gpus
    rate = None if nic.gbit_per_s is None else nic.gbit_per_s / GBIT_PER_GB
    branch: dict[str, Node] = {
        "name": Known(value=nic.name, source=nic.source),
        "kind": Known(value=nic.kind, source=nic.source),
        "rate": LearntRate(nominal_gb_per_s=rate, source=f"{nic.gbit_per_s:g} Gbit/s by {nic.source}")
        if nic.gbit_per_s is not None
        else LearntRate(nominal_gb_per_s=None, source=f"{nic.source} prints no rate"),
    }
    if nic.slot_gb_per_s is not None and rate is not None and nic.slot_gb_per_s < rate:
        branch["slot"] = LearntRate(nominal_gb_per_s=nic.slot_gb_per_s, source=f"its PCIe slot by {nic.source}")
    if nic.numa is not None:
        branch["numa"] = Known(value=nic.numa, source=nic.source)
    if nic.rail is not None:
        branch["rail"] = Known(value=nic.rail, source="the fabric")
    branch["gpus"] = (
        Known(value=list(near), source=nic.source)
        if near
        else Gap(needed="indexes of the GPUs that it is nearest to: nvidia-smi topo -m")
    )
    return branch


def _islands_label(item: Mapping[str, Any]) -> str:
    gpus = item.get("gpus")
    return ",".join(map(str, gpus)) if isinstance(gpus, list | tuple) else "?"


def or_gap(value: Any, source: str, needed: str) -> Known | Gap:
    """A value, or a gap where it is None."""
    return Gap(needed=needed) if value is None else Known(value=value, source=source)


def _gib(mib: int | None) -> float | None:
    return None if mib is None else round(mib / _MIB_PER_GIB, 1)
