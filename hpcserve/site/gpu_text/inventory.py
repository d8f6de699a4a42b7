"""The GPUs of one node, as `nvidia-smi -q` and `nvidia-smi --query-gpu` tell them."""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["FabricSeat", "GpuInventory", "InstalledGpu"]

MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricSeat:
    """What a GPU says of an NVLink fabric across nodes."""

    state: str | None
    status: str | None
    cluster_uuid: str | None
    clique: int | None

    @property
    def domain(self) -> tuple[str, int] | None:
        """(cluster UUID, clique): GPUs with the same one reach one another by NVLink, on other nodes too.

        None where there is no such fabric: N/A, a registration that is not complete or failed, or the zero UUID that
        single HGX nodes print.
        """
        registered = self.state in {None, "Completed"} and self.status in {None, "Success"}
        if not registered or self.cluster_uuid is None or self.clique is None or not self.cluster_uuid.strip("0-"):
            return None
        return self.cluster_uuid, self.clique


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledGpu:
    """One GPU; None for what the text does not say or gives as N/A."""

    index: int
    """From 0 in the order of bus addresses, as the tool lists them."""
    model: str | None
    bus: str | None
    """PCI address as printed, `00000000:1B:00.0`."""
    uuid: str | None
    memory_mib: int | None
    pcie_generation: int | None
    """The most that GPU and slot can do; less is in use while the GPU idles."""
    pcie_lanes: int | None
    pcie_lanes_now: int | None
    """In use; unlike the generation it does not fall while the GPU idles."""
    mig: bool | None
    """Whether it is cut into MIG instances."""
    fabric: FabricSeat | None

    @property
    def memory_gib(self) -> float | None:
        """Memory in GiB."""
        return None if self.memory_mib is None else self.memory_mib / MIB_PER_GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInventory:
    """All GPUs of one node."""

    gpus: tuple[InstalledGpu, ...]
    driver: str | None = None

    @property
    def domains(self) -> Mapping[tuple[str, int], tuple[int, ...]]:
        """For each NVLink domain across nodes the indexes of the GPUs in it."""
        found: dict[tuple[str, int], list[int]] = {}
        for gpu in self.gpus:
            if gpu.fabric is not None and gpu.fabric.domain is not None:
                found.setdefault(gpu.fabric.domain, []).append(gpu.index)
        return {domain: tuple(gpus) for domain, gpus in found.items()}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a plan for this node has to mind, in words."""
        told = []
        if len({gpu.model for gpu in self.gpus}) > 1:
            told.append("the GPUs are of several models; a node type has one")
        domains = self.domains
        if len(domains) > 1:
            told.append("the GPUs are in several NVLink domains or cliques; the partition of the fabric cuts this node")
        for gpu in self.gpus:
            fabric = gpu.fabric
            if fabric is not None and fabric.cluster_uuid is not None and fabric.domain is None:
                if fabric.cluster_uuid.strip("0-"):
                    told.append(
                        f"GPU {gpu.index}: NVLink fabric not ready (state {fabric.state}, status {fabric.status},"
                        f" clique {fabric.clique}); it counts for no domain"
                    )
            elif fabric is not None and domains and fabric.domain is None:
                told.append(f"GPU {gpu.index}: in no NVLink domain, though others of this node are")
            if gpu.mig:
                told.append(f"GPU {gpu.index}: cut into MIG instances; a site's GPUs are whole ones")
            if gpu.pcie_lanes is not None and gpu.pcie_lanes_now is not None and gpu.pcie_lanes_now < gpu.pcie_lanes:
                told.append(f"GPU {gpu.index}: {gpu.pcie_lanes_now} of {gpu.pcie_lanes} PCIe lanes in use")
        return tuple(told)
