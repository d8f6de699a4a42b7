"""A service on simulated time: arrivals, queues, batches, KV on shared links, the router's own choice, failures.

In: `Deployment` (workers, latency models, links), `Traffic`, SLO, seed. Out: `Outcome`: TTFT, TPOT, attainment,
good request rate, utilisation; goodput by search. May touch: nothing.
"""

from hpcserve.simulate.deployment import (
    Deployment,
    Failure,
    Flow,
    Overlap,
    Scheduling,
    Worker,
    deployment_of,
)
from hpcserve.simulate.flows import LinkUse
from hpcserve.simulate.front import GoodputFound, find_goodput, simulate
from hpcserve.simulate.outcome import Outcome, PoolUse, Record, WorkerUse
from hpcserve.simulate.trace_text import azure_trace, mooncake_trace
from hpcserve.simulate.traffic import Arrival, Lengths, Offered, Trace, Traffic

__all__ = [
    "Arrival",
    "Deployment",
    "Failure",
    "Flow",
    "GoodputFound",
    "Lengths",
    "LinkUse",
    "Offered",
    "Outcome",
    "Overlap",
    "PoolUse",
    "Record",
    "Scheduling",
    "Trace",
    "Traffic",
    "Worker",
    "WorkerUse",
    "azure_trace",
    "deployment_of",
    "find_goodput",
    "mooncake_trace",
    "simulate",
]
