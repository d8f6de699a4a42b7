"""Which worker goes where and why: `place` turns a fabric, a model and a service into a `Plan`.

`weigh` does so for several shapes and chooses by simulation. In: `Fabric`, `Site`, `ModelShape`, `Service`, the
`Allocation` once there is one, latency models. Out: `Plan`, `Comparison`. Touches: nothing.
"""

from hpcserve.placement.allocations import outlook
from hpcserve.placement.place import place
from hpcserve.placement.shape_compare import Weighed, weigh
from hpcserve.placement.shape_speeds import Speed

__all__ = ["Speed", "Weighed", "outlook", "place", "weigh"]
