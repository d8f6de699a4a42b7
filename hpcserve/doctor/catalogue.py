"""Every check by its id, where it runs, and whether it belongs to the gate at job start."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from hpcserve.doctor.check_engine import (
    container_runtime,
    engine_starts,
    nixl_backend,
    pid_namespaces,
    two_ucx,
    ucx_transports,
    versions,
)
from hpcserve.doctor.check_environment import (
    inherited_transport,
    loaded_modules,
    locked_memory,
    open_files,
    proxies,
    shared_memory,
)
from hpcserve.doctor.check_files import clock, directories, shared_directory, space
from hpcserve.doctor.check_gpus import gpu_errors, gpu_leftovers, gpus, nvlink, nvlink_domain
from hpcserve.doctor.check_network import host_name, link_speed, networks, ports
from hpcserve.doctor.check_rdma import (
    backend,
    gpu_direct,
    peer_to_peer,
    rdma_devices,
    rdma_files,
    rdma_places,
    rdma_rates,
)
from hpcserve.doctor.check_slurm import slurm_commands, slurm_dialect, slurm_facts, slurm_nodes
from hpcserve.doctor.evidence import Evidence, SlurmSeen, Wanted
from hpcserve.doctor.finding import Finding, Said

__all__ = ["GATE", "KV_GATE", "LOGIN", "NODE", "SLURM", "Check", "examine"]

E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check(Generic[E]):
    """One check: its id, and what it says of the evidence."""

    id: str
    look: Callable[[E, Wanted], Iterable[Said]]


def _checks(**looks: Callable[[E, Wanted], Iterator[Said]]) -> tuple[Check[E], ...]:
    """Checks in the order given; the id of `gpu_direct` is `gpu-direct`."""
    return tuple(Check(id=name.replace("_", "-"), look=look) for name, look in looks.items())


NODE: tuple[Check[Evidence], ...] = _checks(
    networks=networks,
    link_speed=link_speed,
    rdma_devices=rdma_devices,
    rdma_rates=rdma_rates,
    rdma_files=rdma_files,
    rdma_places=rdma_places,
    backend=backend,
    gpus=gpus,
    gpu_errors=gpu_errors,
    gpu_leftovers=gpu_leftovers,
    nvlink=nvlink,
    nvlink_domain=nvlink_domain,
    gpu_direct=gpu_direct,
    peer_to_peer=peer_to_peer,
    container_runtime=container_runtime,
    engine=engine_starts,
    nixl=nixl_backend,
    two_ucx=two_ucx,
    ucx_transports=ucx_transports,
    pid_namespaces=pid_namespaces,
    versions=versions,
    inherited_transport=inherited_transport,
    loaded_modules=loaded_modules,
    locked_memory=locked_memory,
    open_files=open_files,
    shared_memory=shared_memory,
    host_name=host_name,
    proxies=proxies,
    ports=ports,
    directories=directories,
    space=space,
    shared_directory=shared_directory,
    clock=clock,
)
"""On a compute node, in a Slurm step, or on this host where there is no Slurm."""

LOGIN: tuple[Check[Evidence], ...] = _checks(proxies=proxies, directories=directories, space=space)
"""On the login node, beside those of Slurm."""

SLURM: tuple[Check[SlurmSeen], ...] = _checks(
    slurm_commands=slurm_commands, slurm_dialect=slurm_dialect, slurm_facts=slurm_facts, slurm_nodes=slurm_nodes
)

_FOR_ALL = frozenset({"networks", "gpus", "gpu-errors", "shared-memory", "ports"})
_FOR_KV = frozenset({"rdma-devices", "rdma-files", "gpu-direct", "inherited-transport", "locked-memory", "backend"})

GATE: tuple[Check[Evidence], ...] = tuple(check for check in NODE if check.id in _FOR_ALL)
"""Checks that take no second and whose failures stop a node from serving: an agent makes them before it reports."""

KV_GATE: tuple[Check[Evidence], ...] = tuple(check for check in NODE if check.id in _FOR_KV)
"""The same for a node that hands KV over."""


def examine(checks: Iterable[Check[E]], seen: E, wanted: Wanted) -> tuple[Finding, ...]:
    """What the checks say of one host's evidence, in their order."""
    return tuple(
        Finding(
            check=check.id,
            severity=said.severity,
            what=said.what,
            nodes=(wanted.node,),
            why=said.why,
            remedy=said.remedy,
        )
        for check in checks
        for said in check.look(seen, wanted)
    )
