"""Plans and curves as drawings.

In: `Plan`s, curves, and a function that says which leaf a node is on. Out: terminal text, SVG. Touches: nothing.
"""

from hpcserve.draw.curve import Curve, CurvePoint, curve_svg
from hpcserve.draw.fabric_svg import plan_svg
from hpcserve.draw.terminal import paths_table, plan_map, text_table

__all__ = ["Curve", "CurvePoint", "curve_svg", "paths_table", "plan_map", "plan_svg", "text_table"]
