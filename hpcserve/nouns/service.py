"""`Service`: what a researcher wants served."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Duration, EnvName, Figure, Name, Noun, PositiveInt, ServiceName, Text

__all__ = ["Distance", "Mode", "Pool", "Role", "RouterSettings", "Service", "Slo", "Workload"]


class Mode(StrEnum):
    """Who decides whether prefill and decode are separate: the verdict (`auto`) or the user."""

    AUTO = "auto"
    DISAGGREGATED = "disaggregated"
    AGGREGATED = "aggregated"


class Role(StrEnum):
    """What a worker does."""

    PREFILL = "prefill"
    DECODE = "decode"
    AGGREGATED = "aggregated"


class Distance(StrEnum):
    """How far a prefill worker is from a decode worker; `best` leaves it to placement."""

    BEST = "best"
    SAME_NODE = "same-node"
    SAME_LEAF = "same-leaf"
    ACROSS_LEAVES = "across-leaves"


class Slo(Noun):
    """What a request must meet to count as good, and the share of requests that must."""

    ttft_ms: Figure
    tpot_ms: Figure
    attainment: Annotated[float, Field(gt=0, le=1)] = 0.9
    """0.9: the target of DistServe (OSDI 2024, section 6.1)."""

    def is_met(self, *, ttft_ms: float | None, tpot_ms: float | None) -> bool:
        """Whether a request with these times is good: both within the limits; one token has no TPOT to miss."""
        return ttft_ms is not None and ttft_ms <= self.ttft_ms and (tpot_ms is None or tpot_ms <= self.tpot_ms)


class Workload(Noun):
    """What a typical request looks like; the verdict is computed for it."""

    input_tokens: PositiveInt
    output_tokens: PositiveInt
    cached_prefix_tokens: Annotated[int, Field(ge=0)] = 0
    """Leading input tokens that a prefill worker has cached: not computed again, but their KV still moves."""
    prefill_tokens_per_s: Figure | None = None
    """Measured prefill speed of one prefill worker; None: unknown, and the verdict says so."""
    requests_per_s: Figure | None = None
    """Load that is expected of the whole service; None: unknown, and what it can carry decides."""


class Pool(Noun):
    """Workers of one role."""

    role: Role
    workers: Annotated[int, Field(gt=0, le=10_000)]
    """At most 10,000: far above any service's, so that a slip of the keyboard is told and not enumerated."""
    tensor_parallel: PositiveInt = 1
    pipeline_parallel: PositiveInt = 1
    """Stages of each worker, one behind the other: tensor_parallel GPUs each, with their own layers."""
    partition: Name | None = None
    """Slurm partition of its workers; None: the service's."""
    args: tuple[str, ...] = ()
    """Further engine arguments, each one word of argv."""
    env: dict[EnvName, str] = Field(default_factory=dict)


class RouterSettings(Noun):
    """What a user may set about the router."""

    port: Annotated[int, Field(ge=1024, le=65535)] | None = None
    """None: a port that is free on the head node."""
    handoff_timeout_s: Figure | None = None
    """Longest wait for the decode leg's first token; None: half the lease."""
    lease_rule: bool = True
    """False only to show in a test what the rule prevents."""
    overlap_weight: Annotated[float, Field(ge=0, le=10)] = 1.0
    """How much a cached prompt token counts against one that is to be computed: 0 ignores the caches."""
    temperature: Annotated[float, Field(ge=0, le=10)] = 0.0
    """0: the worker of the least expected cost. Above: drawn, one that costs the share T more e times as seldom."""
    split: Literal["always", "when-cheaper"] = "always"
    """`when-cheaper`: prefill on the decode worker where that is expected to cost less than a handoff."""
    borrow: Literal["never", "when-cheaper"] = "never"
    """`when-cheaper`: a worker of either pool does both phases where that is expected to cost less than a handoff."""
    pulls_in_turn: bool = True
    """Whether a prompt waits for its place on its decode worker's link, once transfer times have been reported."""
    kv: Literal["approximate", "events"] = "approximate"
    """How the router knows who holds a prompt's KV: by where prefixes went lately, or by the engines' KV events."""
    refuse_beyond_slo: Figure | None = None
    """A request whose TTFT is expected beyond so many times the SLO's is refused with 429; None: all are taken."""
    access_log: bool = False
    """Whether a line for each request is written to `logs/access.jsonl`; nothing of prompts."""


class Service(Noun):
    """One service: the model, the pools, the SLO, the workload it is judged on."""

    schema_: Annotated[Literal["hpcserve.service/1"], Field(alias="schema")]
    name: ServiceName
    model: Text
    """Directory of the model, absolute, under `~`, or relative to the site's `paths.models`."""
    served_name: Text
    """The name that clients send as `model`."""
    engine: Literal["vllm", "sim"]
    mode: Mode
    distance: Distance = Distance.BEST
    partition: Name | None
    """Slurm partition; null only with the local launcher."""
    account: Text | None = None
    time: Duration
    spares: Annotated[int, Field(ge=0, le=1000)] = 0
    """Nodes that Slurm is asked for beyond those of the plan: the job goes on without as many that prove unfit."""
    kv_lease_s: PositiveInt = 30
    """How long a prefill worker keeps KV for a decode worker (vLLM's `kv_lease_duration`, default 30)."""
    pools: Annotated[tuple[Pool, ...], Field(min_length=1)]
    """Pools of prefill, decode and/or aggregated workers; `mode` picks the roles that are started."""
    args: tuple[str, ...] = ()
    """Engine arguments of every pool, before the pool's own."""
    env: dict[EnvName, str] = Field(default_factory=dict)
    slo: Slo
    workload: Workload
    router: RouterSettings = RouterSettings()

    def partition_of(self, pool: Pool) -> str | None:
        """Where the pool's workers are placed."""
        return pool.partition or self.partition

    @property
    def partitions(self) -> tuple[str | None, ...]:
        """The partitions of the pools, each once, in the pools' order."""
        return tuple(dict.fromkeys(self.partition_of(pool) for pool in self.pools))
