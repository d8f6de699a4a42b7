"""What is wrong with a site before a job finds out: on the login node, on compute nodes, at job start.

In: a `Site`, its runtimes, node names. Out: `DoctorReport`, `Finding`s. Touches: this host's files, limits, devices and
ports, Slurm's commands, a directory that all nodes share; each check itself is a function of `Evidence`.
"""

from hpcserve.doctor.command import Ran, run_command
from hpcserve.doctor.finding import DoctorReport, Finding, NodeReport, Severity
from hpcserve.doctor.fold import shown_findings
from hpcserve.doctor.gate import gate
from hpcserve.doctor.order import Order
from hpcserve.doctor.survey import survey

__all__ = [
    "DoctorReport",
    "Finding",
    "NodeReport",
    "Order",
    "Ran",
    "Severity",
    "gate",
    "run_command",
    "shown_findings",
    "survey",
]
