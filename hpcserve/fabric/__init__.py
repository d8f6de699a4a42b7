"""A site's fabric as a graph: what lies between any two GPUs and what it carries one way.

In: `Site`. Out: `Fabric`, whose paths name their hops, rate and the source of that rate. Touches: nothing.
"""

from hpcserve.fabric.build import fabric_of
from hpcserve.fabric.graph import Fabric, FabricPath, GpuAt, Link, PathDistance

__all__ = ["Fabric", "FabricPath", "GpuAt", "Link", "PathDistance", "fabric_of"]
