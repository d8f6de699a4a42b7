"""A site's fabric as a graph: what lies between any two GPUs and what it carries one way, alone and shared.

In: `Site`, perhaps a `Measurement`. Out: `Fabric`, whose paths name their hops, rate and the source of that rate; the
share of each of several flows. Touches: nothing.
"""

from hpcserve.fabric.build import fabric_of
from hpcserve.fabric.graph import Fabric
from hpcserve.fabric.links import FabricPath, GpuAt, Link, PathDistance
from hpcserve.fabric.ranks import rank_flows
from hpcserve.fabric.share import Share, max_min
from hpcserve.fabric.switches import SwitchAt

__all__ = [
    "Fabric",
    "FabricPath",
    "GpuAt",
    "Link",
    "PathDistance",
    "Share",
    "SwitchAt",
    "fabric_of",
    "max_min",
    "rank_flows",
]
