"""Measures a service that is up: one request after another, or a Poisson stream at a rate.

In: a `Target` (from a job directory) and a `Point` to measure. Out: a `Run` with every request and its validity.
May touch: router and engines by HTTP, `/proc`, a load generator as a subprocess, files of the job directory.
"""

from hpcserve.bench.alone import run_alone
from hpcserve.bench.host import BusyLimits
from hpcserve.bench.poisson import PoissonGenerator
from hpcserve.bench.rate import Generator, Offered, run_rate
from hpcserve.bench.record import Point, unrealised_run
from hpcserve.bench.target import Target, target_of
from hpcserve.bench.validity import Evidence, judge
from hpcserve.bench.vllm_bench import VllmBenchGenerator, offered_of

__all__ = [
    "BusyLimits",
    "Evidence",
    "Generator",
    "Offered",
    "Point",
    "PoissonGenerator",
    "Target",
    "VllmBenchGenerator",
    "judge",
    "offered_of",
    "run_alone",
    "run_rate",
    "target_of",
    "unrealised_run",
]
