"""Turns a plan into the text of a job: the scripts, the `#SBATCH` directives, the copies that a job directory keeps.

In: Plan, Site, Service, template texts. Out: a Job, or one worker's launch script; same inputs, same bytes.
Touches: nothing.
"""

from hpcserve.render.directives import directive_lines
from hpcserve.render.job import TEMPLATE_NAMES, render_job
from hpcserve.render.worker import render_worker

__all__ = ["TEMPLATE_NAMES", "directive_lines", "render_job", "render_worker"]
