"""Shapes: mode, parallelism and counts for a number of GPUs, before anybody asks where the workers sit."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hpcserve.model import cut_of, pipeline_obstacle
from hpcserve.nouns import Mode, ModelShape, NodeType, Pool, Role, Service
from hpcserve.placement.demand import needed_gib, pair_obstacle, workers_of
from hpcserve.placement.shape_rates import aggregated_rate, decode_rate, prefill_rate
from hpcserve.placement.shape_speeds import Speeds, scheduling_of

__all__ = ["UNSIMULATED", "Shape", "as_written", "legal_ranks", "quick_rate", "shapes_for"]

UNSIMULATED = "aggregated workers of several pipeline stages cannot be simulated"
"""Their steps do both phases, and what a pipeline makes of those is in no latency model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The pools that a service would have; all of their workers start."""

    mode: Literal["disaggregated", "aggregated"]
    pools: tuple[Pool, ...]

    @property
    def gpus(self) -> int:
        """Of all workers."""
        return sum(pool.workers * pool.tensor_parallel * pool.pipeline_parallel for pool in self.pools)

    @property
    def name(self) -> str:
        """`2 prefill TP 4 + 1 decode TP 8`; with pipeline stages `TP 4 PP 2`."""
        return " + ".join(
            f"{pool.workers} {pool.role.value} {_cut(pool.tensor_parallel, pool.pipeline_parallel)}"
            for pool in self.pools
        )

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for shapes that ask for the same workers."""
        pools = (
            (pool.role, pool.workers, pool.tensor_parallel, pool.pipeline_parallel, pool.partition)
            for pool in self.pools
        )
        return self.mode, tuple(pools)

    def service(self, service: Service) -> Service:
        """The service with these pools."""
        return service.model_copy(update={"mode": Mode(self.mode), "pools": self.pools})


def as_written(service: Service, mode: Literal["disaggregated", "aggregated"]) -> Shape:
    """The shape of the service's own pools in that mode."""
    pools: dict[tuple[object, ...], Pool] = {}
    for worker in workers_of(service, mode):
        own = service.pools[worker.pool]
        key = worker.role, worker.tensor_parallel, worker.stages, own.args, worker.partition
        before = pools[key].workers if key in pools else 0
        pools[key] = own.model_copy(update={"role": worker.role, "workers": before + 1})
    return Shape(mode=mode, pools=tuple(pools.values()))


def legal_ranks(model: ModelShape, service: Service, kind: NodeType, stages: int = 1) -> tuple[int, ...]:
    """Tensor parallelism that the model's heads, the node's GPUs and NVLink islands, and their memory allow.

    Of workers of so many stages, none where the model's layers do not allow these.
    """
    if pipeline_obstacle(model, stages) is not None:
        return ()
    widest = kind.gpu.count
    if kind.nvlink and not kind.tensor_parallel_across_islands:
        widest = max(len(island.gpus) for island in kind.nvlink)
    return tuple(
        ranks
        for ranks in cut_of(model).sizes()
        if (ranks == 1 or ranks <= widest) and needed_gib(model, service, ranks, stages) <= kind.gpu.memory_gib
    )


def shapes_for(
    gpus: int, *, service: Service, model: ModelShape, kind: NodeType, speeds: Speeds
) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """Every shape of at most so many GPUs that fills them as far as it can; and what was left out, in words.

    Only parallelism that a latency model was given for: no other speed is guessed. Both phases get equally many
    pipeline stages; aggregated workers one, as their pipeline is not simulated.
    """
    found: list[Shape] = []
    left_out: list[str] = []
    for stages in sorted({1, *speeds.stages}):
        legal = legal_ranks(model, service, kind, stages)
        roles = [role for role in Role if stages == 1 or role != Role.AGGREGATED]
        by_role = {role: [ranks for ranks in legal if speeds.of(role, ranks, stages) is not None] for role in roles}
        for ranks in legal:
            missing = [role.value for role in roles if ranks not in by_role[role]]
            asked_for = stages == 1 or len(missing) < len(roles)
            if missing and asked_for and ranks * stages <= gpus:
                said = f"{_cut(ranks, stages)} of {', '.join(missing)} workers: no latency model was given"
                left_out.append(said)
        found += [
            Shape(mode="aggregated", pools=(_pool(service, Role.AGGREGATED, gpus // ranks, ranks),))
            for ranks in by_role.get(Role.AGGREGATED, ())
            if ranks <= gpus
        ]
        found += _separate(gpus, service, model, by_role[Role.PREFILL], by_role[Role.DECODE], stages=stages)
    if speeds.stages[-1:] > (1,):
        left_out.append(UNSIMULATED)
    return tuple(found), tuple(left_out)


def _separate(
    gpus: int, service: Service, model: ModelShape, prefills: Iterable[int], decodes: Sequence[int], *, stages: int
) -> Iterator[Shape]:
    cut = cut_of(model)
    for here in prefills:
        for there in decodes:
            if pair_obstacle(cut, model, here, there) is not None:
                continue
            for count in range(1, (gpus // stages - there) // here + 1):
                pools = (
                    _pool(service, Role.PREFILL, count, here, stages),
                    _pool(service, Role.DECODE, (gpus // stages - count * here) // there, there, stages),
                )
                yield Shape(mode="disaggregated", pools=pools)


def _cut(ranks: int, stages: int) -> str:
    return f"TP {ranks}" + (f" PP {stages}" if stages > 1 else "")


def _pool(service: Service, role: Role, workers: int, ranks: int, stages: int = 1) -> Pool:
    """Arguments and variables as the service's first pool of that role has them."""
    own = next((pool for pool in service.pools if pool.role == role), None)
    plain = own or Pool(role=role, workers=1, partition=service.pools[0].partition)
    return plain.model_copy(update={"workers": workers, "tensor_parallel": ranks, "pipeline_parallel": stages})


def quick_rate(pool: Pool, *, service: Service, kind: NodeType, speeds: Speeds) -> float:
    """Requests/s that one worker of the pool carries within the limits, by formulas; n workers carry n times as many.

    The transfer is not counted. 0 where not even one request meets the limits.
    """
    model = speeds.need(pool)
    load, slo = service.workload, service.slo
    if pool.role == Role.PREFILL:
        return prefill_rate(model, workload=load, slo=slo, stages=pool.pipeline_parallel)
    carried = decode_rate if pool.role == Role.DECODE else aggregated_rate
    return carried(model, workload=load, slo=slo, scheduling=scheduling_of(service, pool, kind))
