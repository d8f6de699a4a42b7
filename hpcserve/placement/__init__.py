"""Which worker goes where and why: `place` turns a fabric, a model and a service into a `Plan`.

In: `Fabric`, `Site`, `ModelShape`, `Service`, the `Allocation` once there is one. Out: `Plan`. Touches: nothing.
"""

from hpcserve.placement.place import place

__all__ = ["place"]
