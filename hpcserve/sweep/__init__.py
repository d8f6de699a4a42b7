"""A grid of placements and rates, measured in one shared allocation through submitit.

In: a sweep file, a site. Out: `Run` files under the results folder, an `Outcome`. May touch: the scheduler through
submitit, the services it starts and ends, files of the results folder.
"""

from hpcserve.sweep.grid import points_of
from hpcserve.sweep.results import Order, PlacementOrder, Results
from hpcserve.sweep.run_sweep import Outcome, run_sweep
from hpcserve.sweep.shared import share

__all__ = ["Order", "Outcome", "PlacementOrder", "Results", "points_of", "run_sweep", "share"]
