"""Latency models by the parallelism that they are of: which workers can be simulated."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hpcserve.engines import option_count, option_value
from hpcserve.errors import NotFoundError
from hpcserve.latency import Chunk, LatencyModel
from hpcserve.latency import Kind as LatencyKind
from hpcserve.model import stage_bytes, stage_layers
from hpcserve.nouns import ModelShape, NodeType, Pool, Role, Service
from hpcserve.simulate import Scheduling

__all__ = ["Speed", "Speeds", "scheduling_of", "speeds_for"]

_GIB = 2**30
_UTILISATION = 0.92
"""Share of a GPU's memory that vLLM 0.32 uses (`--gpu-memory-utilization`), where the service does not set it."""
_LARGE_GPU_GIB = 70.0
"""From here on vLLM's API server takes larger steps, A100 excepted (`EngineArgs`, 0.32)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A latency model, and the tensor and pipeline parallelism of the workers that it tells of.

    `gpu` and `model_name` are what its times are of, as its file names them; None: not known.
    """

    model: LatencyModel
    prefill_ranks: int
    decode_ranks: int
    prefill_stages: int = 1
    decode_stages: int = 1
    gpu: str | None = None
    model_name: str | None = None

    def tells_of(self, role: Role, ranks: int, stages: int) -> bool:
        """Whether it has the times of such a worker, of both phases where it does both."""
        prefills = role == Role.DECODE or (self.prefill_ranks, self.prefill_stages) == (ranks, stages)
        decodes = role == Role.PREFILL or (self.decode_ranks, self.decode_stages) == (ranks, stages)
        return prefills and decodes

    def is_of_gpu(self, model: str) -> bool:
        """Whether its times are of such a GPU: `a100` and `a100_sxm` are both of an `a100-sxm`."""
        return self.gpu is None or _alike(self.gpu, model)

    def is_of_model(self, model: str) -> bool:
        """Whether its times are of that model, by the last part of a path or of a name on a hub."""
        return self.model_name is None or _alike(self.model_name.rpartition("/")[2], model.rpartition("/")[2])


def _alike(one: str, other: str) -> bool:
    """Whether one name says all that the other does: words of letters and digits, in any case."""
    first, second = (set(re.findall(r"[a-z0-9.]+", name.lower())) for name in (one, other))
    return first <= second or second <= first


@dataclass(frozen=True, slots=True)
class _WithRoom:
    """A latency model that does not know its room for KV, with the room that arithmetic gives."""

    model: LatencyModel
    kv_tokens: int

    @property
    def source(self) -> str:
        return self.model.source

    @property
    def kind(self) -> LatencyKind:
        return self.model.kind

    def prefill_ms(self, chunks: Sequence[Chunk]) -> float:
        return self.model.prefill_ms(chunks)

    def decode_ms(self, sequences: int, context_tokens: int) -> float:
        return self.model.decode_ms(sequences, context_tokens)

    def step_ms(self, chunks: Sequence[Chunk], sequences: int, context_tokens: int) -> float:
        return self.model.step_ms(chunks, sequences, context_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """The latency models given, those of the GPUs that are used first; a worker's own is the first that fits."""

    speeds: tuple[Speed, ...]
    shape: ModelShape
    gpu_memory_gib: float | None
    """Of the GPUs that are used; None where they are CPU slots, whose memory is not the KV's."""
    utilisation: float = _UTILISATION
    """Share of that memory that an engine uses, 0 to 1."""

    def of(self, role: Role, ranks: int, stages: int = 1) -> LatencyModel | None:
        """The model of a worker; None where none was given for so many ranks and stages."""
        found = self._first(role, ranks, stages)
        return None if found is None else self._with_room(found.model, ranks, stages)

    def of_others(self, pool: Pool, *, model: str, gpu: str) -> str:
        """What the times of a pool's workers are of, where that is another model or GPU; empty where it is not."""
        found = self._first(pool.role, pool.tensor_parallel, pool.pipeline_parallel)
        if found is None or (found.is_of_model(model) and found.is_of_gpu(gpu)):
            return ""
        return " on ".join(part for part in (found.model_name, found.gpu) if part)

    def need(self, pool: Pool) -> LatencyModel:
        """That of a pool's workers; raises NotFoundError where there is none."""
        found = self.of(pool.role, pool.tensor_parallel, pool.pipeline_parallel)
        if found is None:
            known = sorted(
                {
                    ((one.prefill_ranks, one.prefill_stages), (one.decode_ranks, one.decode_stages))
                    for one in self.speeds
                }
            )
            words = ", ".join(_cut(*a) if a == b else f"{_cut(*a)} (prefill) and {_cut(*b)} (decode)" for a, b in known)
            raise NotFoundError(
                f"no latency model of a {pool.role.value} worker with tensor_parallel "
                f"{_cut(pool.tensor_parallel, pool.pipeline_parallel)}; those that were given are of tensor_parallel "
                f"{words}",
                remedy="give one more --latency of that parallelism, or change it in the pool",
            )
        return found

    def _first(self, role: Role, ranks: int, stages: int) -> Speed | None:
        return next((speed for speed in self.speeds if speed.tells_of(role, ranks, stages)), None)

    @property
    def stages(self) -> tuple[int, ...]:
        """Pipeline parallelism that any of them is of."""
        return tuple(sorted({count for one in self.speeds for count in (one.prefill_stages, one.decode_stages)}))

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the times come from."""
        return tuple(dict.fromkeys(speed.model.source for speed in self.speeds))

    def _with_room(self, model: LatencyModel, ranks: int, stages: int) -> LatencyModel:
        weights = self.shape.weights_bytes
        if model.kv_tokens is not None or weights is None or self.gpu_memory_gib is None:
            return model
        tokens, layers = self.shape.max_context_tokens, stage_layers(self.shape.layers, stages)
        kept = stage_bytes(self.shape, tokens, stages=stages, tensor_parallel=ranks)
        memory = self.gpu_memory_gib * _GIB * self.utilisation
        rooms = [
            int((memory - weights * count / self.shape.layers / ranks) / (each / tokens))
            for count, each in zip(layers, kept, strict=True)
            if each
        ]
        return _WithRoom(model, max(1, min(rooms)))


def _cut(ranks: int, stages: int) -> str:
    """The parallelism of a worker, as a refusal says it after the words `tensor_parallel`."""
    return str(ranks) + (f" and pipeline_parallel {stages}" if stages > 1 else "")


def speeds_for(speeds: Sequence[Speed], *, shape: ModelShape, service: Service, kind: NodeType) -> Speeds:
    """The latency models with the memory that workers of the service have on such nodes; of its pools the least."""
    return Speeds(
        speeds=tuple(sorted(speeds, key=lambda one: not one.is_of_gpu(kind.gpu.model))),
        shape=shape,
        gpu_memory_gib=None if kind.gpu.model == "cpu" else kind.gpu.memory_gib,
        utilisation=min(_utilisation((*service.args, *pool.args)) for pool in service.pools),
    )


def _utilisation(words: Sequence[str]) -> float:
    """What the arguments say, else vLLM's own; it refuses what is no share, and that is not counted either."""
    try:
        share = float(option_value(words, "--gpu-memory-utilization") or _UTILISATION)
    except ValueError:
        return _UTILISATION
    return share if 0 < share <= 1 else _UTILISATION


def scheduling_of(service: Service, pool: Pool, kind: NodeType) -> Scheduling:
    """How vLLM fills a step: as the service's arguments say, else its own defaults on such GPUs."""
    large = kind.gpu.model != "cpu" and kind.gpu.memory_gib >= _LARGE_GPU_GIB and "a100" not in kind.gpu.model.lower()
    words = (*service.args, *pool.args)
    return Scheduling(
        token_budget=option_count(words, "--max-num-batched-tokens") or (8192 if large else 2048),
        max_sequences=option_count(words, "--max-num-seqs") or (1024 if large else 256),
    )
