"""What a service asks to be placed: its workers, and whether the model can be cut as they want it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from hpcserve.errors import PlacementError
from hpcserve.model import Cut, cut_of, pipeline_obstacle, stage_bytes, stage_layers
from hpcserve.nouns import ModelShape, Pool, Role, Service

__all__ = [
    "StageOf",
    "Wanted",
    "check_model",
    "has_both_phases",
    "most_needed_gib",
    "needed_gib",
    "pair_obstacle",
    "stages_of",
    "workers_of",
]

StageOf = tuple[str, int]
"""A worker's id, and which of its pipeline stages."""

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One pipeline stage of a worker, which is placed by itself; most workers have one.

    Workers of one `pool` (index in the service) are interchangeable.
    """

    id: str
    """Of the worker."""
    role: Role
    pool: int
    tensor_parallel: int
    """GPUs of the stage."""
    stage: int = 0
    stages: int = 1
    partition: str | None = None
    """The partition whose nodes it may have."""

    @property
    def key(self) -> StageOf:
        """Which stage of which worker."""
        return self.id, self.stage


def has_both_phases(service: Service) -> bool:
    """Whether the service has pools of both prefill and decode workers."""
    return {Role.PREFILL, Role.DECODE} <= {pool.role for pool in service.pools}


def workers_of(service: Service, mode: str) -> tuple[Wanted, ...]:
    """The first stages of the workers that `mode` starts, numbered within each role through the pools in their order.

    Disaggregated: those of the prefill and decode pools. Aggregated: those of the aggregated pools; where there are
    none, one for each prefill and decode worker, of the same parallelism, so that as many GPUs are used.
    """
    pools = list(enumerate(service.pools))
    chosen: list[tuple[int, Pool, Role]]
    if mode == "disaggregated":
        chosen = [(i, pool, pool.role) for i, pool in pools if pool.role != Role.AGGREGATED]
    else:
        whole = [(i, pool, Role.AGGREGATED) for i, pool in pools if pool.role == Role.AGGREGATED]
        chosen = whole or [(i, pool, Role.AGGREGATED) for i, pool in sorted(pools, key=_prefill_first)]
    numbers = dict.fromkeys(Role, 0)
    workers: list[Wanted] = []
    for index, pool, role in chosen:
        for _ in range(pool.workers):
            workers.append(
                Wanted(
                    id=f"{role}-{numbers[role]}",
                    role=role,
                    pool=index,
                    tensor_parallel=pool.tensor_parallel,
                    stages=pool.pipeline_parallel,
                    partition=service.partition_of(pool),
                )
            )
            numbers[role] += 1
    return tuple(workers)


def stages_of(workers: Sequence[Wanted]) -> tuple[Wanted, ...]:
    """All stages of these workers, those of one worker one after the other."""
    return tuple(replace(worker, stage=stage) for worker in workers for stage in range(worker.stages))


def _prefill_first(pool: tuple[int, Pool]) -> bool:
    return pool[1].role != Role.PREFILL


def check_model(
    workers: tuple[Wanted, ...], shape: ModelShape, service: Service, *, gpu_memory_gib: Mapping[str | None, float]
) -> None:
    """Raise PlacementError where the engine could not run the model as these workers want it.

    `gpu_memory_gib`: of the largest GPU of each partition. `Cut` (in `model`) has the engine's rules; what a rank of a
    sequence needs is `stage_bytes` there.
    """
    cut = cut_of(shape)
    for worker in workers:
        obstacle = cut.obstacle(worker.tensor_parallel)
        if obstacle is not None:
            raise PlacementError(
                f"tensor_parallel {worker.tensor_parallel} of {worker.id} {obstacle} of {shape.name}",
                remedy=f"use one of {', '.join(map(str, cut.sizes()))}",
            )
        obstacle = pipeline_obstacle(shape, worker.stages)
        if obstacle is not None:
            raise PlacementError(
                f"pipeline_parallel {worker.stages} of {worker.id} {obstacle} ({shape.name})",
                remedy="lower pipeline_parallel",
            )
        _check_memory(worker, shape, service, gpu_memory_gib[worker.partition])
    tokens = service.workload.input_tokens + service.workload.output_tokens
    if tokens > shape.max_context_tokens:
        raise PlacementError(
            f"a request of {tokens} tokens (workload) does not fit the context of {shape.name}, "
            f"{shape.max_context_tokens} tokens",
            remedy="lower workload.input_tokens or workload.output_tokens",
        )
    sizes = {role: sorted({worker.tensor_parallel for worker in workers if worker.role == role}) for role in Role}
    for prefill, decode in product(sizes[Role.PREFILL], sizes[Role.DECODE]):
        _check_pair(cut, shape, prefill, decode)
    stages = {role: sorted({worker.stages for worker in workers if worker.role == role}) for role in Role}
    for prefill, decode in product(stages[Role.PREFILL], stages[Role.DECODE]):
        if prefill != decode:
            raise PlacementError(
                f"pipeline_parallel {prefill} of prefill and {decode} of decode differ, and each stage of a prefill "
                "worker hands the KV of its layers to the stage of a decode worker that has the same layers",
                remedy="use the same pipeline_parallel for both",
            )


def _check_pair(cut: Cut, shape: ModelShape, prefill: int, decode: int) -> None:
    """Refuse numbers of ranks that cannot hand KV to each other."""
    obstacle = pair_obstacle(cut, shape, prefill, decode)
    if obstacle is not None:
        sizes = cut.sizes()
        differing = [f"{a}->{b}" for a, b in product(sizes, sizes) if a != b and not pair_obstacle(cut, shape, a, b)]
        others = f", or one of {', '.join(differing)}" if differing else ""
        raise PlacementError(
            f"tensor_parallel {prefill} of prefill and {decode} of decode differ, and {shape.name} cannot be handed "
            f"over between them: {obstacle}",
            remedy=f"use the same tensor_parallel for both{others}",
        )


def pair_obstacle(cut: Cut, shape: ModelShape, prefill: int, decode: int) -> str | None:
    """Why so many ranks of prefill and of decode are not planned together: see `Cut.pair_obstacle`; None: they may be.

    More than the engine's rules: paths of latent vectors between different numbers are not predicted.
    """
    obstacle = cut.pair_obstacle(prefill, decode)
    if obstacle is None and prefill != decode and any(group.kind == "latent_attention" for group in shape.groups):
        return "of its latent vectors, copied to every rank, no path between different numbers is predicted"
    return obstacle


def most_needed_gib(workers: Sequence[Wanted], shape: ModelShape, service: Service) -> dict[str | None, float]:
    """By partition what the GPUs of each of its workers must have, whichever worker gets them; see `needed_gib`."""
    needed: dict[str | None, float] = {}
    for worker in workers:
        own = needed_gib(shape, service, worker.tensor_parallel, worker.stages)
        needed[worker.partition] = max(own, needed.get(worker.partition, 0.0))
    return needed


def needed_gib(shape: ModelShape, service: Service, ranks: int, stages: int = 1) -> float:
    """GiB on each GPU of so many ranks and stages for weights and the KV of one typical request, where it is most.

    0 where the weights are not known; they are taken as cut evenly, by layers into stages.
    """
    if shape.weights_bytes is None:
        return 0.0
    tokens = service.workload.input_tokens + service.workload.output_tokens
    weights = shape.weights_bytes * max(stage_layers(shape.layers, stages)) / shape.layers
    return (weights / ranks + max(stage_bytes(shape, tokens, stages=stages, tensor_parallel=ranks))) / _GIB


def _check_memory(worker: Wanted, shape: ModelShape, service: Service, gpu_memory_gib: float) -> None:
    needed = needed_gib(shape, service, worker.tensor_parallel, worker.stages)
    if needed > gpu_memory_gib:
        raise PlacementError(
            f"{worker.id} needs {needed:.1f} GiB on each GPU for weights and the KV of one request, and the "
            f"largest GPU has {gpu_memory_gib:.1f} GiB",
            remedy="raise tensor_parallel or pipeline_parallel, or choose a partition with larger GPUs",
        )
