"""Text of nvidia-smi -> how GPUs and NICs lie, and which GPUs there are.

In: what `nvidia-smi topo -m`, `-q` and `--query-gpu` printed. Out: `GpuTopology`, `GpuInventory`, or every mistake at
once. Touches: nothing.
"""

from hpcserve.site.gpu_text.inventory import FabricSeat, GpuInventory, InstalledGpu
from hpcserve.site.gpu_text.kinds import KINDS
from hpcserve.site.gpu_text.matrix import parse_matrix
from hpcserve.site.gpu_text.report import parse_report
from hpcserve.site.gpu_text.topology import GpuSeat, GpuTopology, NearestNics

__all__ = [
    "KINDS",
    "FabricSeat",
    "GpuInventory",
    "GpuSeat",
    "GpuTopology",
    "InstalledGpu",
    "NearestNics",
    "parse_matrix",
    "parse_report",
]
