"""How long a worker computes: prefill, decode and mixed steps, from figures that name their source.

In: what a step computes; runs, published profiles and latency files. Out: milliseconds of one worker, all its ranks
together; TTFT by queueing formulas. May touch: nothing.
"""

from hpcserve.latency.curve import Curve
from hpcserve.latency.curved import CurvedLatency
from hpcserve.latency.distserve import distserve
from hpcserve.latency.fit import fit
from hpcserve.latency.linear import LinearLatency
from hpcserve.latency.named import NAMES, named, parallelism_of, subject_of
from hpcserve.latency.pipelined import PipelinedLatency
from hpcserve.latency.queueing import (
    busy_share,
    constant_service_wait_ms,
    general_service_wait_ms,
    quick_ttft_ms,
    split_layers_ttft_ms,
    split_operators_ttft_ms,
)
from hpcserve.latency.record import model_of, read_latency
from hpcserve.latency.sampled import StepTimes, sampled_latency
from hpcserve.latency.splitwise import splitwise_latency
from hpcserve.latency.step import Chunk, Kind, LatencyModel
from hpcserve.latency.two_regime import TwoRegimeLatency

__all__ = [
    "NAMES",
    "Chunk",
    "Curve",
    "CurvedLatency",
    "Kind",
    "LatencyModel",
    "LinearLatency",
    "PipelinedLatency",
    "StepTimes",
    "TwoRegimeLatency",
    "busy_share",
    "constant_service_wait_ms",
    "distserve",
    "fit",
    "general_service_wait_ms",
    "model_of",
    "named",
    "parallelism_of",
    "quick_ttft_ms",
    "read_latency",
    "sampled_latency",
    "split_layers_ttft_ms",
    "split_operators_ttft_ms",
    "splitwise_latency",
    "subject_of",
]
