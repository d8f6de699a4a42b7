"""Runs -> Report -> text, CSV, HTML.

In: `Run`s that were read from anywhere. Out: a `Report` and its three forms. Touches: nothing.
"""

from hpcserve.report.attainment import is_good, wilson_interval
from hpcserve.report.page import html
from hpcserve.report.summary import report_of
from hpcserve.report.tables import csv, text

__all__ = ["csv", "html", "is_good", "report_of", "text", "wilson_interval"]
