"""The published profile of DistServe and of the vLLM that it was compared with: OPT on A100 80 GB.

Coefficients: github.com/LLMServe/DistServe (Apache-2.0), commit 82831f16, simdistserve/estimators/profile_data/
profiler-a100-80g.distserve.json and profiler-a100-80g.vllm.json, rounded to 6 digits; KV capacities: max_num_tokens.csv
beside them. Described in Zhong et al., DistServe, OSDI 2024. In milliseconds: prefill a + b * tokens + c * tokens^2,
decode a + b * (context + sequences) + c * sequences, as the token that a step makes counts as context, with another fit
from 95 sequences on.
"""

from collections.abc import Mapping
from typing import Literal

from hpcserve.latency.linear import LinearLatency
from hpcserve.latency.two_regime import TwoRegimeLatency

__all__ = ["PROFILES", "STAGED", "Engine", "distserve"]

Engine = Literal["distserve", "vllm"]
_Fit = tuple[float, float, float]

_LARGE_FROM = 95
"""Sequences from which on the profile's second decode fit holds."""

PROFILES: Mapping[tuple[Engine, str, int], tuple[_Fit, _Fit, _Fit]] = {
    ("distserve", "opt-13b", 1): (
        (18.1025, 0.101912, 7.12226e-06), (19.9347, 6.26936e-04, 0.0385070), (7.16619, 5.79800e-04, 0.158311),
    ),
    ("distserve", "opt-13b", 2): (
        (14.7430, 0.0685772, 2.44957e-06), (13.2948, 3.41092e-04, 0.0629639), (10.6387, 3.11834e-04, 0.0856291),
    ),
    ("distserve", "opt-13b", 4): (
        (12.0623, 0.0380814, 5.22625e-07), (10.2562, 1.87867e-04, 0.0326927), (10.4835, 1.71209e-04, 0.0456665),
    ),
    ("distserve", "opt-66b", 2): (
        (43.0588, 0.274229, 2.24780e-05), (48.2880, 9.42434e-04, 0.127550), (28.7277, 4.74485e-04, 0.296178),
    ),
    ("distserve", "opt-66b", 3): (
        (32.9982, 0.195683, 1.22052e-05), (35.8015, 5.84500e-04, 0.0952670), (22.6539, 5.35849e-04, 0.208514),
    ),
    ("distserve", "opt-66b", 4): (
        (29.4416, 0.151352, 8.31745e-06), (30.7603, 4.51948e-04, 0.0632842), (27.4708, 4.04685e-04, 0.124807),
    ),
    ("distserve", "opt-66b", 8): (
        (25.4907, 0.106592, 3.39105e-06), (23.1551, 2.26915e-04, 0.0480064), (21.7177, 3.75809e-04, 0.0897861),
    ),
    ("vllm", "opt-13b", 1): (
        (22.0522, 0.140509, 8.07658e-06), (23.4750, 5.92934e-04, 0.0607269), (20.2064, 4.90773e-04, 0.120003),
    ),
    ("vllm", "opt-13b", 2): (
        (27.4408, 0.0905453, 8.45205e-06), (24.5406, 2.24401e-04, 0.0871579), (17.9478, 4.57085e-04, 0.111791),
    ),
    ("vllm", "opt-13b", 4): (
        (30.5363, 0.0515064, 4.23247e-07), (25.9011, 7.75363e-05, 0.0552809), (23.8839, 2.84002e-04, 0.0627652),
    ),
    ("vllm", "opt-66b", 3): (
        (45.7445, 0.277813, 3.64625e-05), (44.9396, 8.09615e-04, 0.212880), (43.6960, 8.40257e-04, 0.240065),
    ),
    ("vllm", "opt-66b", 4): (
        (42.9655, 0.212866, 4.60102e-05), (39.5818, 6.94572e-04, 0.135809), (40.8597, 4.26487e-04, 0.195084),
    ),
    ("vllm", "opt-66b", 8): (
        (38.9312, 0.157368, 4.53168e-06), (31.1760, 2.75565e-04, 0.0679770), (29.0878, 6.02772e-04, 0.138961),
    ),
}  # fmt: skip
"""(prefill, decode of small batches, decode of large ones) by engine, model and TP. vLLM's OPT-66B at TP 2 is left out:
its published c is negative, and longer prompts would take less time. There is no profile of OPT-175B."""

_CAPACITY: Mapping[tuple[str, int, int], int] = {
    ("opt-13b", 1, 1): 66_144,
    ("opt-13b", 1, 2): 163_008,
    ("opt-13b", 2, 1): 163_008,
    ("opt-13b", 2, 2): 356_752,
    ("opt-13b", 4, 1): 356_736,
    ("opt-66b", 1, 2): 11_600,
    ("opt-66b", 1, 4): 78_512,
    ("opt-66b", 2, 1): 11_600,
    ("opt-66b", 2, 2): 78_512,
    ("opt-66b", 2, 4): 212_320,
    ("opt-66b", 3, 1): 45_056,
    ("opt-66b", 3, 2): 145_408,
    ("opt-66b", 4, 1): 78_496,
    ("opt-66b", 4, 2): 212_320,
    ("opt-66b", 8, 1): 212_304,
}
"""KV tokens of one worker by model, TP and PP."""

STAGED: tuple[tuple[Engine, str, int, int], ...] = tuple(
    ("distserve", model, ranks, stages)
    for model, ranks, stages in _CAPACITY
    if stages > 1 and ("distserve", model, ranks) in PROFILES
)
"""Workers of several stages that were published: by their profile, and how much KV they hold."""

_STAGE_MS = 1.0
"""What the published simulator adds to a prefill step for each pipeline stage of the worker."""
_CALL_MS, _CALL_MS_PER_TOKEN = 2.0, 1e-4
"""What it adds to each step of the first stage for the call through Ray, and per token of the step's requests."""


def distserve(
    model: str, tensor_parallel: int, *, engine: Engine = "distserve", stages: int = 1, simulator: bool = False
) -> TwoRegimeLatency:
    """Times of one of `stages` pipeline stages (one: the whole worker); raises KeyError for what was not published.

    `simulator`: with the constants that the published simulator adds to the profile: a prefill step takes 1 ms per
    stage, and each step 2 ms and 0.0001 ms per token for the call. Its cut of a worker into stages divides the time of
    a step evenly. KV capacity is None where the published table has none.
    """
    prefill, small, large = PROFILES[engine, model, tensor_parallel]
    call_ms, call_ms_per_token = (_CALL_MS, _CALL_MS_PER_TOKEN) if simulator else (0.0, 0.0)
    stage_ms = _STAGE_MS * stages if simulator else 0.0
    a, b, c = prefill
    name = "DistServe" if engine == "distserve" else "vLLM as DistServe profiled it"
    source = (
        f"{name}, {model.upper()} on A100 80 GB, TP {tensor_parallel}"
        + (f", {stages} stages" if stages > 1 else "")
        + (", with the simulator's constants" if simulator else "")
        + ": Zhong et al., OSDI 2024, profile of github.com/LLMServe/DistServe"
    )

    def regime(decode: _Fit) -> LinearLatency:
        base, per_context, per_sequence = decode
        return LinearLatency(
            prefill_base_ms=a / stages + stage_ms + call_ms,
            prefill_ms_per_token=b / stages + call_ms_per_token,
            prefill_ms_per_token2=2 * c / stages,
            decode_base_ms=base / stages + call_ms,
            decode_ms_per_sequence=(per_sequence + per_context) / stages,
            decode_ms_per_context_token=per_context / stages + call_ms_per_token,
            kv_tokens=_CAPACITY.get((model, tensor_parallel, stages)),
            source=source,
            kind="predicted",
        )

    return TwoRegimeLatency(small=regime(small), large=regime(large), large_from=_LARGE_FROM)
