"""What a service asks to be placed: its workers, and whether the model can be cut as they want it."""

from dataclasses import dataclass

from hpcserve.errors import PlacementError
from hpcserve.nouns import ModelShape, Pool, Role, Service

__all__ = ["Wanted", "check_model", "has_both_phases", "workers_of"]

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One worker to be placed. Workers of one `pool` (index in the service) are interchangeable."""

    id: str
    role: Role
    pool: int
    tensor_parallel: int


def has_both_phases(service: Service) -> bool:
    """Whether the service has pools of both prefill and decode workers."""
    return {Role.PREFILL, Role.DECODE} <= {pool.role for pool in service.pools}


def workers_of(service: Service, mode: str) -> tuple[Wanted, ...]:
    """The workers that `mode` starts, numbered within each role through the pools in their order.

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
                Wanted(id=f"{role}-{numbers[role]}", role=role, pool=index, tensor_parallel=pool.tensor_parallel)
            )
            numbers[role] += 1
    return tuple(workers)


def _prefill_first(pool: tuple[int, Pool]) -> bool:
    return pool[1].role != Role.PREFILL


def check_model(workers: tuple[Wanted, ...], shape: ModelShape, service: Service, *, gpu_memory_gib: float) -> None:
    """Raise PlacementError where the engine could not run the model as these workers want it.

    The rules are vLLM's: attention heads are divided among the ranks; KV heads too, or where there are fewer of them
    than ranks each is copied to the same number of ranks; between prefill and decode of different parallelism KV heads
    must not be copied, and one parallelism must be a multiple of the other.
    """
    for worker in workers:
        _check_heads(worker, shape)
        _check_memory(worker, shape, service, gpu_memory_gib)
    tokens = service.workload.input_tokens + service.workload.output_tokens
    if tokens > shape.max_context_tokens:
        raise PlacementError(
            f"a request of {tokens} tokens (workload) does not fit the context of {shape.name}, "
            f"{shape.max_context_tokens} tokens",
            remedy="lower workload.input_tokens or workload.output_tokens",
        )
    sizes = {role: {worker.tensor_parallel for worker in workers if worker.role == role} for role in Role}
    for prefill in sorted(sizes[Role.PREFILL]):
        for decode in sorted(sizes[Role.DECODE]):
            if prefill == decode:
                continue
            if max(prefill, decode) % min(prefill, decode):
                raise PlacementError(
                    f"tensor_parallel {prefill} of prefill and {decode} of decode: neither is a multiple of the other",
                    remedy="make one a multiple of the other",
                )
            if max(prefill, decode) > shape.kv_heads:
                raise PlacementError(
                    f"tensor_parallel {prefill} of prefill and {decode} of decode differ, and {shape.name} has only "
                    f"{shape.kv_heads} KV heads",
                    remedy=f"use the same tensor_parallel for both, or at most {shape.kv_heads}",
                )


def _check_heads(worker: Wanted, shape: ModelShape) -> None:
    ranks = worker.tensor_parallel
    if shape.attention_heads % ranks:
        divisors = [n for n in range(1, shape.attention_heads + 1) if shape.attention_heads % n == 0]
        raise PlacementError(
            f"tensor_parallel {ranks} of {worker.id} does not divide the {shape.attention_heads} attention heads of "
            f"{shape.name}",
            remedy=f"use one of {', '.join(map(str, divisors))}",
        )
    if max(ranks, shape.kv_heads) % min(ranks, shape.kv_heads):
        raise PlacementError(
            f"tensor_parallel {ranks} of {worker.id} and the {shape.kv_heads} KV heads of {shape.name}: neither is a "
            "multiple of the other",
            remedy="use a divisor or a multiple of the number of KV heads",
        )


def _check_memory(worker: Wanted, shape: ModelShape, service: Service, gpu_memory_gib: float) -> None:
    if shape.weights_bytes is None:
        return
    ranks = worker.tensor_parallel
    tokens = service.workload.input_tokens + service.workload.output_tokens
    kv_bytes = tokens * shape.kv_bytes_per_token * max(1 / ranks, 1 / shape.kv_heads)
    needed_gib = (shape.weights_bytes / ranks + kv_bytes) / _GIB
    if needed_gib > gpu_memory_gib:
        raise PlacementError(
            f"{worker.id} needs {needed_gib:.1f} GiB on each GPU for weights and the KV of one request, and the "
            f"largest GPU has {gpu_memory_gib:.1f} GiB",
            remedy="raise tensor_parallel, or choose a partition with larger GPUs",
        )
