"""What the links between nodes really carry: NIXL reads between their memories, timed in a job of their own.

In: Site, nodes; in the job: MPI's barriers, NIXL. Out: an Errand, readings, a Measurement. Touches: NIXL processes,
MPI, counters of NICs, files of the job directory.
"""

from importlib.resources import files

from hpcserve.measure.errand import ERRAND_FILE, PROGRESS_FILE, Errand, Flow, Progress, Reading, Seat, Task
from hpcserve.measure.pairs import MOST_SEATS_FOR_EVERY_PAIR
from hpcserve.measure.plan import plan_errand, time_limit_s
from hpcserve.measure.readings import day_of_readings, read_readings
from hpcserve.measure.rounds import rounds_of
from hpcserve.measure.summary import measurement_of, static_gb_per_s
from hpcserve.measure.words import causes_of, errand_text, measurement_text

__all__ = [
    "ERRAND_FILE",
    "MOST_SEATS_FOR_EVERY_PAIR",
    "PROGRESS_FILE",
    "Errand",
    "Flow",
    "Progress",
    "Reading",
    "Seat",
    "Task",
    "causes_of",
    "child_program",
    "day_of_readings",
    "errand_text",
    "measurement_of",
    "measurement_text",
    "plan_errand",
    "read_readings",
    "rounds_of",
    "static_gb_per_s",
    "time_limit_s",
]


def child_program() -> str:
    """The text of the NIXL process's program, which is copied to where the engine's Python finds it."""
    return files("hpcserve.measure").joinpath("child.py").read_text(encoding="utf-8")
