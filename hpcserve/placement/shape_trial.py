"""One shape placed on the fabric and simulated under the SLO."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric
from hpcserve.latency import Chunk, LatencyModel
from hpcserve.model import kept_bytes, stage_bytes
from hpcserve.nouns import Goodput, ModelShape, NodeType, Plan, Pool, Role, Service
from hpcserve.placement.demand import workers_of
from hpcserve.placement.shape import UNSIMULATED, Shape, quick_rate
from hpcserve.placement.shape_rates import typical_prompt
from hpcserve.placement.shape_speeds import Speeds, scheduling_of
from hpcserve.routing import preferences_of
from hpcserve.simulate import Deployment, Lengths, Offered, Outcome, Scheduling, deployment_of, find_goodput, simulate

__all__ = ["NOTICED", "Bench", "Trial"]

NOTICED = 0.03
"""Less than this share of goodput is within what the search for it and its draws leave open."""

_TOLERANCE = 0.02
_FEWEST, _MOST = 400, 6000
"""Requests of one simulation: so many that decode batches fill and empty several times."""
_TURNOVERS = 6
_SLOWED = 4.0
"""By how much a full batch's step may be longer than that of one sequence, for the number of requests alone."""
_WARM_UP = 0.1
_BELOW, _ABOVE = 0.25, 8.0
"""Rates that are tried, around the quick one."""
_LOWEST = 1e-3
"""Of the most that prefill could take in: what misses the SLO there misses it without any load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A shape, where it would sit, and what it gave."""

    shape: Shape
    plan: Plan
    deployment: Deployment
    quick: float
    goodput: Goodput
    best: Outcome
    """The run at the highest rate that met the SLO; else at the lowest that was tried."""
    at_load: Outcome | None
    """At the load that the service expects."""
    gpus: int
    """Of its workers, or those that were asked for where some are left idle."""
    remarks: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Goodput in requests/s; 0 where even the lowest rate missed the SLO."""
        return 0.0 if self.goodput.bound == "below" or not self.goodput.request_rate else self.goodput.request_rate

    @property
    def per_gpu(self) -> float:
        """Goodput per GPU."""
        return self.rate / self.gpus


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What all trials share; `place` is the assignment, given here so that it can be used without it.

    `kinds` and `speeds` are by partition: what GPUs its nodes have, and the latency models with their memory.
    """

    place: Callable[[Service], Plan]
    fabric: Fabric
    model: ModelShape
    service: Service
    kinds: Mapping[str | None, NodeType]
    speeds: Mapping[str | None, Speeds]
    gpus: int = 0
    """That were asked for: those that a shape leaves idle count too. 0: only those that it uses."""
    seed: int = 0

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the times come from."""
        return tuple(dict.fromkeys(source for speeds in self.speeds.values() for source in speeds.sources))

    def model_of(self, pool: Pool) -> LatencyModel:
        """How long its workers compute; raises NotFoundError where no model of their parallelism was given."""
        return self.speeds[self.service.partition_of(pool)].need(pool)

    def scheduling_of(self, pool: Pool) -> Scheduling:
        """How its workers fill a step."""
        return scheduling_of(self.service, pool, self.kinds[self.service.partition_of(pool)])

    @cached_property
    def _units(self) -> dict[tuple[object, ...], float]:
        return {}

    def quick(self, shape: Shape) -> float:
        """Requests/s by formulas, the transfer not counted."""
        rates = dict.fromkeys(Role, 0.0)
        for pool in shape.pools:
            where = self.service.partition_of(pool)
            key = pool.role, pool.tensor_parallel, pool.pipeline_parallel, pool.args, where
            if key not in self._units:
                self._units[key] = quick_rate(
                    pool, service=self.service, kind=self.kinds[where], speeds=self.speeds[where]
                )
            rates[pool.role] += pool.workers * self._units[key]
        if shape.mode == "aggregated":
            return rates[Role.AGGREGATED]
        return min(rates[Role.PREFILL], rates[Role.DECODE])

    def run(self, shape: Shape) -> Trial:
        """Place and simulate it; raises PlacementError where it cannot be placed, or not be simulated."""
        if any(pool.role == Role.AGGREGATED and pool.pipeline_parallel > 1 for pool in shape.pools):
            raise PlacementError(UNSIMULATED, remedy="set pipeline_parallel: 1 for them, or leave --latency out")
        quick = self.quick(shape)
        plan = self.place(shape.service(self.service))
        if plan.mode != shape.mode:
            raise PlacementError("prefill and decode cannot be placed apart", remedy="see `hpcserve plan`")
        deployment = self._deployment(shape, plan)
        limit = self._most_rate(shape)
        lowest = max(quick * _BELOW, limit * _LOWEST)
        highest = max(quick * _ABOVE, 2 * lowest)
        found = self._search(deployment, lowest, highest)
        if found[0].bound == "below" and lowest > limit * _LOWEST:
            found = self._search(deployment, limit * _LOWEST, lowest)
        load = self.service.workload.requests_per_s
        return Trial(
            shape=shape,
            plan=plan,
            deployment=deployment,
            quick=quick,
            goodput=found[0],
            best=found[1],
            at_load=None if load is None else self.at(deployment, load),
            gpus=max(self.gpus, shape.gpus),
            remarks=(*self._remarks(shape, found[1], quick), *self._timed_alike(shape), *self._timed_as_others(shape)),
        )

    def at(self, deployment: Deployment, rate: float) -> Outcome:
        """What the deployment gives at a rate."""
        traffic = self._traffic(rate)
        warm_up = round(_WARM_UP * traffic.requests)
        return simulate(deployment, traffic, slo=self.service.slo, seed=self.seed, warm_up=warm_up)

    def _search(self, deployment: Deployment, lowest: float, highest: float) -> tuple[Goodput, Outcome]:
        traffic = self._traffic(highest / _ABOVE)
        found = find_goodput(
            deployment,
            traffic,
            slo=self.service.slo,
            lowest=lowest,
            highest=highest,
            seed=self.seed,
            warm_up=round(_WARM_UP * traffic.requests),
            tolerance=_TOLERANCE,
        )
        wanted = self.service.slo.attainment
        met = [run for run in found.runs if run.attainment >= wanted]
        first_missed = min((run.offered_rate for run in found.runs if run.attainment < wanted), default=None)
        before = [run for run in met if first_missed is None or run.offered_rate < first_missed]
        return found.goodput, before[-1] if before else found.runs[0]

    def _together(self, rate: float) -> float:
        """Requests that are about in the service at a time."""
        tpot_ms = min(self.service.slo.tpot_ms, _SLOWED * self._step_ms)
        return rate * self.service.workload.output_tokens * tpot_ms / 1e3

    def _remarks(self, shape: Shape, run: Outcome, rate: float) -> tuple[str, ...]:
        """What the simulation did not know, and where it is short."""
        said = ["KV capacity is not known and was taken to be without limit"] if run.remarks else []
        if _TURNOVERS * self._together(rate) > _MOST:
            said.append(f"runs of {_MOST} requests are short for such a rate: goodput may be too high")
        if any(pool.pipeline_parallel > 1 for pool in shape.pools):
            said.append("what pipeline stages send to one another is only in the latency model, wherever they are")
        return tuple(said)

    def _timed_alike(self, shape: Shape) -> tuple[str, ...]:
        """Latency models that GPUs of several kinds were given, as none of their own was."""
        kinds: dict[str, dict[str, None]] = {}
        for pool in shape.pools:
            kind = self.kinds[self.service.partition_of(pool)]
            kinds.setdefault(self.model_of(pool).source, {})[kind.gpu.model] = None
        return tuple(
            f"{' and '.join(models)} GPUs were given the same times: {source}"
            for source, models in kinds.items()
            if len(models) > 1
        )

    def _timed_as_others(self, shape: Shape) -> tuple[str, ...]:
        """Latency models of another model or GPU than the workers', as none of their own was given."""
        found: dict[str, None] = {}
        for pool in shape.pools:
            where = self.service.partition_of(pool)
            gpu = self.kinds[where].gpu.model
            others = self.speeds[where].of_others(pool, model=self.service.model, gpu=gpu)
            if others:
                found[f"times of {others} were taken for {self.service.model} on {gpu}"] = None
        return tuple(found)

    def _traffic(self, rate: float) -> Offered:
        load = self.service.workload
        return Offered(
            rate=rate,
            requests=round(min(_MOST, max(_FEWEST, _TURNOVERS * self._together(rate)))),
            lengths=(Lengths(load.input_tokens, load.output_tokens, typical_prompt(load).before_tokens),),
        )

    @cached_property
    def _step_ms(self) -> float:
        """The longest decode step of one sequence that any of the latency models has."""
        tokens = self.service.workload.input_tokens
        return max(speed.model.decode_ms(1, tokens) for one in self.speeds.values() for speed in one.speeds)

    def _most_rate(self, shape: Shape) -> float:
        """Requests/s that the workers could prefill if they did nothing else, one prompt a step."""
        prompt = (typical_prompt(self.service.workload),)
        return sum(
            pool.workers * pool.pipeline_parallel * 1e3 / self.model_of(pool).prefill_ms(prompt)
            for pool in shape.pools
            if pool.role != Role.DECODE
        )

    def _deployment(self, shape: Shape, plan: Plan) -> Deployment:
        wanted = workers_of(shape.service(self.service), shape.mode)
        pools = {worker.id: shape.pools[worker.pool] for worker in wanted}
        load = self.service.workload
        first = {pool.role: self._first_model(shape, pool.role) for pool in shape.pools}
        prefiller = first.get(Role.PREFILL) or first[Role.AGGREGATED]
        decoder = first.get(Role.DECODE) or first[Role.AGGREGATED]
        made = deployment_of(
            plan,
            fabric=self.fabric,
            latency=first,
            kv_bytes=lambda tokens, ranks: kept_bytes(self.model, tokens, tensor_parallel=ranks),
            pulls_in_turn=self.service.router.pulls_in_turn,
            prefill_ms=prefiller.prefill_ms((Chunk(load.input_tokens, 0),)),
            decode_step_ms=decoder.decode_ms(1, load.input_tokens),
            stage_shares=self._stage_shares(max(pool.pipeline_parallel for pool in shape.pools)),
        )
        workers = tuple(
            replace(
                worker,
                latency=self.model_of(pools[worker.id]),
                scheduling=self.scheduling_of(pools[worker.id]),
            )
            for worker in made.workers
        )
        return replace(made, workers=workers, preferences=preferences_of(self.service))

    def _stage_shares(self, stages: int) -> tuple[float, ...]:
        """What each stage's layers keep of a typical request's KV."""
        kept = stage_bytes(self.model, self.service.workload.input_tokens, stages=stages)
        return tuple(one / sum(kept) for one in kept)

    def _first_model(self, shape: Shape, role: Role) -> LatencyModel:
        return self.model_of(next(pool for pool in shape.pools if pool.role == role))
