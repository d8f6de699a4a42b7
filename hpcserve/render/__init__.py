"""Turns a plan into the text of a job: the scripts, the `#SBATCH` directives, the copies that a job directory keeps.

In: Plan, Site, Service, template texts. Out: a Job, or one worker's launch script; same inputs, same bytes.
Touches: nothing.
"""

from hpcserve.render.directives import asked_options, directive_lines, with_options
from hpcserve.render.job import TEMPLATE_NAMES, render_job
from hpcserve.render.measure import MEASURE_TEMPLATE_NAMES, measuring_dialect, render_measurement
from hpcserve.render.runtime import runtime_files
from hpcserve.render.worker import render_worker

__all__ = [
    "MEASURE_TEMPLATE_NAMES",
    "TEMPLATE_NAMES",
    "asked_options",
    "directive_lines",
    "measuring_dialect",
    "render_job",
    "render_measurement",
    "render_worker",
    "runtime_files",
    "with_options",
]
