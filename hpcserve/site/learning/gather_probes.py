"""What tools that ran on single nodes say of their GPUs and NICs, put together node by node."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Protocol, TypeVar

from hpcserve.site.gpu_text import GpuInventory, GpuTopology
from hpcserve.site.host_text import Cores, Interface, SysfsDump
from hpcserve.site.infiniband_text import AdapterPorts
from hpcserve.site.learning.facts import KnownNode, ProbeFacts
from hpcserve.site.learning.gather_nics import nics_of, pcie_gb_per_s, plain_ethernet

__all__ = ["probes_of"]

_INTERFACES_TOLD = 6

T = TypeVar("T")


class _Reading(Protocol):
    """A `Reading`: what was read, and where it came from."""

    @property
    def source(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def parsed(self) -> object: ...
    @property
    def host(self) -> str | None: ...


def probes_of(
    readings: Iterable[_Reading], nodes: Mapping[str, KnownNode], disagreements: list[str], notes: list[str]
) -> dict[str, ProbeFacts]:
    """For each node whose tools were read what they say. A text whose node nobody can tell is left out and named."""
    texts: dict[str, list[_Reading]] = {}
    for reading in readings:
        if not isinstance(reading.parsed, GpuTopology | GpuInventory | AdapterPorts | Cores | SysfsDump | tuple):
            continue
        host = reading.host or _host_in(reading.source, nodes) or _only_kind(nodes)
        if host is None:
            notes.append(
                f"{reading.source} ({reading.kind}) is left out: name the file after the node that printed it,"
                f" as in {min(nodes, default='NODE')}.{reading.kind}"
            )
            continue
        texts.setdefault(host, []).append(reading)
    return {host: _probe(host, own, nodes.get(host), disagreements, notes) for host, own in texts.items()}


def _host_in(source: str, nodes: Mapping[str, KnownNode]) -> str | None:
    """The node that a path names: `node01/ibstat.txt`, `node01.ibstat`, `ibstat.node01.txt`."""
    by_short = {name.split(".")[0]: name for name in nodes}
    for part in reversed(PurePosixPath(source).parts):
        for word in (part, PurePosixPath(part).stem, *part.split(".")):
            if word in nodes:
                return word
            if word in by_short:
                return by_short[word]
    return None


def _only_kind(nodes: Mapping[str, KnownNode]) -> str | None:
    """The first node where all that have GPUs are alike to Slurm: a text of any of them speaks for all."""
    with_gpus = [node for node in nodes.values() if node.gpus] or list(nodes.values())
    kinds = {(node.cores, node.memory_mib, node.gpus, node.gres_type) for node in with_gpus}
    return with_gpus[0].host if len(kinds) == 1 else None


def _probe(
    host: str, texts: Sequence[_Reading], node: KnownNode | None, disagreements: list[str], notes: list[str]
) -> ProbeFacts:
    matrix = next((one.parsed for one in texts if isinstance(one.parsed, GpuTopology)), None)
    inventory = next((one.parsed for one in texts if isinstance(one.parsed, GpuInventory)), None)
    ports = next((one.parsed for one in texts if isinstance(one.parsed, AdapterPorts)), None)
    sysfs = next((one.parsed for one in texts if isinstance(one.parsed, SysfsDump)), None)
    interfaces = next((one.parsed for one in texts if isinstance(one.parsed, tuple)), ())
    all_interfaces = (*interfaces, *(sysfs.interfaces if sysfs else ()))
    nics = nics_of(host, matrix, ports, sysfs, notes)
    for found in (matrix, inventory):
        if found is not None:
            notes += [f"{host}: {warning}" for warning in found.warnings]
    counts = {
        "nvidia-smi topo -m": len(matrix.gpus) if matrix else None,
        "nvidia-smi": len(inventory.gpus) if inventory else None,
        "Slurm": node.gpus if node else None,
    }
    told = {tool: count for tool, count in counts.items() if count is not None}
    if len(set(told.values())) > 1:
        disagreements.append(
            f"{host}: GPUs: "
            + ", ".join(f"{count} by {tool}" for tool, count in told.items())
            + f"; {next(iter(told))} is taken"
        )
    probe = ProbeFacts(
        host=host,
        gpu_count=next((count for tool, count in told.items() if tool != "Slurm"), None),
        gpu_numa=_all(gpu.cpu_numa for gpu in matrix.gpus) if matrix else None,
        gpu_cpus=_all(gpu.cpu_affinity for gpu in matrix.gpus) if matrix else None,
        islands=tuple(island for island in matrix.islands if len(island) > 1) if matrix else (),
        nics=nics.infiniband,
        offered=(*nics.ethernet, *plain_ethernet(host, all_interfaces)),
        devices=matrix.nics if matrix and not ports and not (sysfs and sysfs.rdma) else (),
        interfaces=tuple(_interfaces(all_interfaces)),
    )
    return probe if inventory is None or not inventory.gpus else _with_inventory(probe, inventory)


def _all(values: Iterable[T | None]) -> tuple[T, ...] | None:
    """Each of the values; None where one is not known, or where there is none."""
    found = tuple(values)
    known = tuple(value for value in found if value is not None)
    return known if known and len(known) == len(found) else None


def _with_inventory(probe: ProbeFacts, inventory: GpuInventory) -> ProbeFacts:
    """A thing that the GPUs differ in stays unknown: a node type has one kind."""
    models = {gpu.model for gpu in inventory.gpus}
    memories = {gpu.memory_mib for gpu in inventory.gpus}
    slots = {(gpu.pcie_generation, gpu.pcie_lanes) for gpu in inventory.gpus}
    domains = list(inventory.domains)
    return replace(
        probe,
        gpu_model=models.pop() if len(models) == 1 else None,
        gpu_memory_mib=memories.pop() if len(memories) == 1 else None,
        domain=domains[0] if len(domains) == 1 else None,
        pcie_gb_per_s=pcie_gb_per_s(*slots.pop()) if len(slots) == 1 else None,
    )


def _interfaces(interfaces: Iterable[object]) -> Iterable[str]:
    told: dict[str, str] = {}
    for one in interfaces:
        if isinstance(one, Interface) and one.is_up is not False and one.kind != "loopback" and one.name != "lo":
            words = [one.name, *(f"{address.address}/{address.prefix}" for address in one.addresses[:1])]
            if one.mbit_per_s:
                words.append(f"{one.mbit_per_s} Mbit/s")
            told.setdefault(one.name, " ".join(words))
    return list(told.values())[:_INTERFACES_TOLD]
