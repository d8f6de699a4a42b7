"""Plans, sites and curves as drawings.

In: `Plan`s, `Site`s, curves, and a function that says which leaf a node is on. Out: terminal text, SVG, HTML. Touches:
nothing.
"""

from hpcserve.draw.comparison import comparison_table, evidence_table
from hpcserve.draw.curve import Curve, CurvePoint, curve_svg
from hpcserve.draw.fabric_svg import plan_svg
from hpcserve.draw.outlook import outlook_table
from hpcserve.draw.site_html import site_html
from hpcserve.draw.site_sketch import Part, Sketch, sketch_of
from hpcserve.draw.site_svg import site_svg
from hpcserve.draw.site_tree import site_tree
from hpcserve.draw.site_words import Measured
from hpcserve.draw.terminal import paths_table, plan_map, text_table

__all__ = [
    "Curve",
    "CurvePoint",
    "Measured",
    "Part",
    "Sketch",
    "comparison_table",
    "curve_svg",
    "evidence_table",
    "outlook_table",
    "paths_table",
    "plan_map",
    "plan_svg",
    "site_html",
    "site_svg",
    "site_tree",
    "sketch_of",
    "text_table",
]
