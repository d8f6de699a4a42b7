"""`Deployment`: what is simulated: workers with their speed and limits, and the links between them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from hpcserve.fabric import Fabric, GpuAt, Link, rank_flows
from hpcserve.latency import LatencyModel
from hpcserve.nouns import Plan, PlannedWorker, Role
from hpcserve.routing import UNKNOWN_PREFILL_MS, UNKNOWN_STEP_MS, Preferences

__all__ = ["Deployment", "Failure", "Flow", "Overlap", "Scheduling", "Worker", "deployment_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """How an engine fills a step.

    The defaults are those of vLLM 0.32's API server on GPUs of less than 70 GiB and on A100 (`EngineArgs`); on larger
    ones its own are 8192 or 16384 tokens and 1024 sequences.
    """

    token_budget: int = 2048
    """Most tokens of one step, `max_num_batched_tokens`: one for each sequence that decodes, the rest for prompts."""
    max_sequences: int = 256
    """Most sequences of one step, `max_num_seqs`."""
    chunked: bool = True
    """Whether a prompt may be computed in parts; else it is computed whole, alone where it is above the budget."""
    mixed: bool = True
    """Whether one step may do both; else prompts go first and those who decode stand still meanwhile, as in vLLM before
    its v1 scheduler."""
    kv_policy: Literal["preempt", "reserve"] = "preempt"
    """`preempt`, as vLLM: KV is taken as tokens are made, and where there is none left the sequence that was admitted
    last gives up all of its own and is computed again later. `reserve`: a request waits until all that it will ever
    need is free."""

    def __post_init__(self) -> None:
        """Raises ValueError for limits under which nothing runs."""
        if self.token_budget < 1 or self.max_sequences < 1:
            raise ValueError(f"{self}: at least one token and one sequence a step were wanted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One engine."""

    id: str
    role: Role
    latency: LatencyModel
    scheduling: Scheduling = Scheduling()
    gpus: int = 1
    stages: int = 1
    """Equal pipeline stages of a prefill worker: of a step of T ms the next one can begin after T ÷ stages. The
    pipeline of a decode worker is its latency model's business."""
    prefix_cache: bool | None = None
    """Whether the cached part of an input needs no computing here; None: everywhere but on decode workers."""

    def __post_init__(self) -> None:
        """Raises ValueError for a pipeline where there can be none."""
        if self.stages < 1 or (self.stages > 1 and self.role != Role.PREFILL):
            raise ValueError(f"{self.id}: at least one stage was wanted, more than one of prefill workers only")

    @property
    def caches_prefixes(self) -> bool:
        """`prefix_cache`, decided."""
        return self.role != Role.DECODE if self.prefix_cache is None else self.prefix_cache


@dataclass(frozen=True, slots=True)
class Flow:
    """One part of a handover: the links that it passes, and its bytes as a share of what one decode rank keeps."""

    links: tuple[Link, ...]
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """KV is sent layer by layer while prefill still computes; only the last layer's comes after it."""

    layers: int
    least_tokens: int = 1
    """Shorter inputs are handed over after prefill; 512 in Splitwise (ISCA 2024, section 4.3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A worker that dies with all it has, and perhaps comes back empty."""

    worker: str
    at_ms: float
    down_ms: float | None = None
    """None: it does not come back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One service. Times are in ms; what they cost beside compute and links is 0 unless it is given."""

    workers: tuple[Worker, ...]
    flows: Mapping[tuple[str, str], tuple[Flow, ...]] = field(default_factory=dict)
    """By (prefill id, decode id); a pair that is missing is never chosen."""
    kv_bytes: Callable[[int, int], int] | None = None
    """What one of so many ranks keeps of an input of so many tokens: `kv_bytes(tokens, ranks)`. None: no KV moves."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """Ranks by decode worker; 1 where it is missing."""
    first_token_by: Literal[Role.PREFILL, Role.DECODE] = Role.DECODE
    """Who makes the token that the client sees first: the decode worker, as with vLLM's connectors, or the prefill
    worker, as DistServe and Splitwise count it."""
    leg_ms: float = 0.0
    """From the router's sending a leg to its being in the engine's queue."""
    transfer_base_ms: float = 0.0
    """Of a transfer, before its bytes move."""
    overlap: Overlap | None = None
    pulls_in_turn: bool = False
    """Whether pulls into one decode worker go one after another, about as the router has it with `router.pulls_in_turn`
    (which delays prompts to that end); else those from different prefill workers share its links."""
    preferences: Preferences = field(default_factory=Preferences)
    """What the service says about choosing."""
    failures: tuple[Failure, ...] = ()
    prefill_ms: float = UNKNOWN_PREFILL_MS
    decode_step_ms: float = UNKNOWN_STEP_MS
    """What the router takes both to be until it has seen some, as `hpcserve.router` does."""

    def __post_init__(self) -> None:
        """Raises ValueError for what names unknown workers, or the same one twice."""
        known = [worker.id for worker in self.workers]
        named = {one for pair in self.flows for one in pair} | {failure.worker for failure in self.failures}
        if not known or len(set(known)) < len(known):
            raise ValueError("at least one worker was wanted, each with an id of its own")
        if unknown := sorted(named - set(known)):
            raise ValueError(f"no workers {', '.join(unknown)}")

    @property
    def gpus(self) -> int:
        """Of all workers."""
        return sum(worker.gpus for worker in self.workers)


def deployment_of(
    plan: Plan,
    *,
    fabric: Fabric,
    latency: Mapping[Role, LatencyModel],
    kv_bytes: Callable[[int, int], int],
    scheduling: Mapping[Role, Scheduling] | None = None,
    pulls_in_turn: bool = False,
    prefill_ms: float | None = None,
    decode_step_ms: float = UNKNOWN_STEP_MS,
    stage_shares: Sequence[float] = (1.0,),
) -> Deployment:
    """The deployment of a plan, each handover on the fabric's links between the very GPUs, stage by stage.

    `stage_shares` is what the layers of each pipeline stage keep of all KV, of as many stages as the workers have that
    hand KV over. What one stage sends to the next is not simulated: it is the latency model's business. `latency` and
    `scheduling` by role; `kv_bytes(tokens, ranks)` is usually `kept_bytes` of the model's shape;
    `prefill_ms` and `decode_step_ms` are what the router starts from, the plan's own prefill time where None is given.
    Raises PlacementError where the fabric has no path or no rate, KeyError for a role without a latency model,
    ValueError for shares of other stages than the plan's.
    """
    settings = scheduling or {}
    workers = tuple(
        Worker(
            id=worker.id,
            role=worker.role,
            latency=latency[worker.role],
            scheduling=settings.get(worker.role, Scheduling()),
            gpus=sum(len(rank.gpus) for rank in worker.ranks),
            stages=worker.stages if worker.role == Role.PREFILL else 1,
        )
        for worker in plan.workers
    )
    flows = {
        (prefill.id, decode.id): tuple(_flows(fabric, prefill, decode, stage_shares))
        for prefill in plan.workers
        if prefill.role == Role.PREFILL
        for decode in plan.workers
        if decode.role == Role.DECODE
    }
    return Deployment(
        workers=workers,
        flows=flows,
        kv_bytes=kv_bytes,
        ranks={worker.id: len(worker.ranks[0].gpus) for worker in plan.workers},
        pulls_in_turn=pulls_in_turn,
        prefill_ms=prefill_ms or plan.verdict.prefill_ms or UNKNOWN_PREFILL_MS,
        decode_step_ms=decode_step_ms,
    )


def _flows(
    fabric: Fabric, prefill: PlannedWorker, decode: PlannedWorker, stage_shares: Sequence[float]
) -> Iterator[Flow]:
    for here, there, kept in zip(prefill.ranks, decode.ranks, stage_shares, strict=True):
        for sender, receiver, share in rank_flows(len(here.gpus), len(there.gpus)):
            path = fabric.path(GpuAt(here.node, here.gpus[sender]), GpuAt(there.node, there.gpus[receiver]))
            yield Flow(path.links, kept * share)
