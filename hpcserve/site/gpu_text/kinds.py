"""nvidia-smi's texts as kinds, and what is understood of them as plain data."""

from collections.abc import Mapping
from typing import Any

from hpcserve.site.gpu_text.failures import looks_like_failure, parse_failure
from hpcserve.site.gpu_text.inventory import GpuInventory
from hpcserve.site.gpu_text.matrix import looks_like_matrix, parse_matrix
from hpcserve.site.gpu_text.query import looks_like_query, parse_query
from hpcserve.site.gpu_text.report import looks_like_report, parse_report
from hpcserve.site.gpu_text.topology import GpuTopology
from hpcserve.site.kind import Kind

__all__ = ["KINDS", "inventory_understood", "topology_understood"]


def topology_understood(found: GpuTopology) -> Mapping[str, Any]:
    """A matrix as plain data; lists by GPU stand in the order of GPU indexes.

    `nvlink_islands` are GPUs that NVLinks join directly or by way of others; where that differs from a site's islands
    a warning says so.
    """
    nearest = [found.nearest_nics(gpu.index) for gpu in found.gpus]
    return {
        "n_gpus": len(found.gpus),
        "n_nics": len(found.nics),
        "nic_names": list(found.nics),
        "gpu_gpu_classes": list(found.gpu_classes),
        "nvlink_islands": [list(group) for group in found.joined],
        "cpu_affinity": [gpu.cpu_affinity for gpu in found.gpus],
        "numa_affinity": [gpu.numa_affinity for gpu in found.gpus],
        "cpu_numa_for_bind": [gpu.cpu_numa for gpu in found.gpus],
        "gpu_numa_id": [gpu.gpu_numa_id for gpu in found.gpus] if found.has_gpu_numa_column else None,
        "best_nics": [{"class": nics.distance, "nics": list(nics.nics)} for nics in nearest],
        "warnings": list(found.warnings),
    }


def inventory_understood(found: GpuInventory) -> Mapping[str, Any]:
    """GPUs as plain data; lists by GPU stand in the order of GPU indexes."""
    return {
        "n_gpus": len(found.gpus),
        "driver": found.driver,
        "models": [gpu.model for gpu in found.gpus],
        "memory_gib": [None if gpu.memory_gib is None else round(gpu.memory_gib, 2) for gpu in found.gpus],
        "pcie": [{"generation": gpu.pcie_generation, "lanes": gpu.pcie_lanes} for gpu in found.gpus],
        "nvlink_domains": [
            {"cluster_uuid": uuid, "clique": clique, "gpus": list(gpus)}
            for (uuid, clique), gpus in found.domains.items()
        ],
        "warnings": list(found.warnings),
    }


KINDS: tuple[Kind[Any], ...] = (
    Kind(
        name="nvidia-smi-topo",
        about="`nvidia-smi topo -m`: how near the GPUs and NICs of one node are to one another",
        looks_like=looks_like_matrix,
        parse=parse_matrix,
        understood=topology_understood,
    ),
    Kind(
        name="nvidia-smi-q",
        about="`nvidia-smi -q`: the GPUs of one node, and their NVLink domain across nodes",
        looks_like=looks_like_report,
        parse=parse_report,
        understood=inventory_understood,
    ),
    Kind(
        name="nvidia-smi-query",
        about="`nvidia-smi --query-gpu=index,name,memory.total,... --format=csv`: the same by fields",
        looks_like=looks_like_query,
        parse=parse_query,
        understood=inventory_understood,
    ),
    Kind(
        name="nvidia-smi-failure",
        about="nvidia-smi's complaint instead of an answer; told with what to do",
        looks_like=looks_like_failure,
        parse=parse_failure,
        understood=lambda _: {},
    ),
)
"""In the order in which a text is tried."""
