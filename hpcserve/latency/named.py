"""Published profiles by name."""

from collections.abc import Mapping

from hpcserve.latency.distserve import PROFILES, STAGED, Engine, distserve
from hpcserve.latency.pipelined import PipelinedLatency
from hpcserve.latency.two_regime import TwoRegimeLatency

__all__ = ["NAMES", "named", "parallelism_of", "subject_of"]

_GPU = "a100"
_KEYS: Mapping[str, tuple[Engine, str, int, int]] = {
    f"{engine}-{model}-{_GPU}-tp{ranks}" + (f"-pp{stages}" if stages > 1 else ""): (engine, model, ranks, stages)
    for engine, model, ranks, stages in (*((*key, 1) for key in PROFILES), *STAGED)
}
NAMES: tuple[str, ...] = tuple(_KEYS)
"""Names such as `distserve-opt-13b-a100-tp2` and, of two pipeline stages, `distserve-opt-13b-a100-tp2-pp2`."""


def named(name: str) -> TwoRegimeLatency | PipelinedLatency:
    """The published profile of that name; KeyError for a name that is not in `NAMES`."""
    engine, model, ranks, stages = _KEYS[name]
    stage = distserve(model, ranks, engine=engine, stages=stages)
    return stage if stages == 1 else PipelinedLatency(stage, stages)


def parallelism_of(name: str) -> tuple[int, int]:
    """Ranks of each stage, and stages, of the worker that the published profile of that name is of, in both phases.

    KeyError as `named`.
    """
    _, _, ranks, stages = _KEYS[name]
    return ranks, stages


def subject_of(name: str) -> tuple[str, str]:
    """The model and the GPU that the published profile of that name is of; KeyError as `named`."""
    return _KEYS[name][1], _GPU
