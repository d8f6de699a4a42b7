"""`Plan`: which worker goes where and why. `Ask`: what Slurm is asked for."""

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from hpcserve.nouns.base import Name, Noun, Positive, PositiveInt, Text
from hpcserve.nouns.service import Distance, Mode, Role
from hpcserve.nouns.verdict import Verdict

__all__ = ["Ask", "Assignment", "PathCost", "Plan", "PlannedWorker", "Rank", "RouterSeat"]

Port = Annotated[int, Field(ge=1, le=65535)]


class Rank(Noun):
    """One pipeline stage of a worker, on one node. GPU and core numbers are the node's own, from 0."""

    node: Name
    gpus: Annotated[tuple[int, ...], Field(min_length=1)]
    nics: tuple[Text, ...]
    cores: tuple[int, ...]


class PlannedWorker(Noun):
    """One engine: its role, its ranks and, once nodes are granted, its reserved ports."""

    id: Name
    """`prefill-0`, `decode-1`, `aggregated-0`."""
    role: Role
    ranks: Annotated[tuple[Rank, ...], Field(min_length=1)]
    """Its pipeline stages in order, most often one; several may be on one node."""
    tensor_parallel: PositiveInt
    """GPUs of each stage."""
    port: Port | None = None
    """HTTP, on the first rank's control address; None before nodes are granted."""
    side_channel_port: Port | None = None
    """First of `tensor_parallel` contiguous ports of the KV handshake; None before nodes are granted."""

    @property
    def node(self) -> str:
        """The node that answers HTTP for this worker."""
        return self.ranks[0].node

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return len(self.ranks)

    @property
    def gpus(self) -> tuple[int, ...]:
        """Of a worker on one node, all its GPUs as engines number ranks: stage by stage."""
        return tuple(gpu for rank in self.ranks for gpu in rank.gpus)


class PathCost(Noun):
    """What moving one typical request's KV from one prefill to one decode worker costs, alone on the path."""

    prefill: Name
    decode: Name
    distance: Literal["same-node", "same-leaf", "across-leaves"]
    hops: tuple[Text, ...]
    """Every link passed by the slowest pair of ranks, in order: `node01.data0`, `leaf1`, ..."""
    rank_paths: PositiveInt = 1
    """Pairs of ranks that share the KV, each with a path of its own."""
    gb_per_s: Positive
    """One-way, of the slowest link."""
    kv_bytes: PositiveInt
    transfer_ms: Positive
    kind: Literal["predicted"] = "predicted"
    source: Text
    """Where the rate of the slowest link comes from."""


class RouterSeat(Noun):
    """Where the router runs."""

    node: Name
    port: Port | None = None


class Ask(Noun):
    """What Slurm is asked for. `nodelist` is exact; `switches` is the largest number of leaf switches.

    `segment`: with topology/block, how many nodes together lie in one block; the number of nodes is a multiple of it.
    `exclude`: nodes of the partition whose GPUs are too small for some worker there, whoever would sit on them.
    """

    partition: Name | None
    nodes: PositiveInt
    gpus_per_node: PositiveInt
    nodelist: tuple[Name, ...] | None = None
    switches: PositiveInt | None = None
    segment: PositiveInt | None = None
    exclude: tuple[Name, ...] = ()
    options: tuple[Text, ...] = ()
    """The options of sbatch that say so, in the site's dialect; empty where no Slurm is asked."""

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As it stands, but for `exclude`, which few have."""
        plain: dict[str, Any] = handler(self)
        if not self.exclude:
            del plain["exclude"]
        return plain


class Assignment(Noun):
    """What the assignment of workers to GPUs costs, and what no assignment can do better than.

    Where there are no paths (aggregated), both times are null; a bound is null where none is known.
    """

    best: bool
    """Whether it is the best: every other was looked at or ruled out."""
    slowest_ms: Positive | None
    """One typical handover on the slowest path, alone."""
    slowest_at_least_ms: Positive | None
    traffic_ms: Positive | None
    """What all links together need for one handover of every pair of workers."""
    traffic_at_least_ms: Positive | None
    nodes: PositiveInt
    nodes_at_least: PositiveInt

    @property
    def gap(self) -> float | None:
        """By what share of the bound the slowest path may be slower than it must; None where nobody knows."""
        if self.best or self.slowest_ms is None:
            return 0.0 if self.best else None
        return None if self.slowest_at_least_ms is None else self.slowest_ms / self.slowest_at_least_ms - 1


class Plan(Noun):
    """The placement of a service, before (`granted: false`) or after Slurm has chosen nodes."""

    schema_: Annotated[Literal["hpcserve.plan/1"], Field(alias="schema")] = "hpcserve.plan/1"
    service: Text
    site: Name
    granted: bool
    asked_mode: Mode
    mode: Literal["disaggregated", "aggregated"]
    distance: Distance
    workers: Annotated[tuple[PlannedWorker, ...], Field(min_length=1)]
    router: RouterSeat
    paths: tuple[PathCost, ...]
    """One for every (prefill, decode) pair; empty when aggregated."""
    verdict: Verdict
    ask: Ask
    further_asks: tuple[Ask, ...] = ()
    """What Slurm is asked for besides, one for each further partition: components of one job, `ask` is the first."""
    assignment: Assignment | None = None
    """None in a plan that no search made."""
    shared: tuple[Text, ...] = ()
    """In words every NIC and core that several workers use; nothing else is shared."""

    def worker(self, worker_id: str) -> PlannedWorker:
        """The worker of that id; KeyError where there is none."""
        for worker in self.workers:
            if worker.id == worker_id:
                return worker
        raise KeyError(worker_id)

    @property
    def asks(self) -> tuple[Ask, ...]:
        """What Slurm is asked for, one for each partition; the head node and the router are in the first."""
        return (self.ask, *self.further_asks)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that carry workers or the router, sorted."""
        used = {rank.node for worker in self.workers for rank in worker.ranks} | {self.router.node}
        return tuple(sorted(used))

    @model_serializer(mode="wrap")
    def _without_what_is_not_asked(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As it stands, but for `further_asks`, which only a plan over several partitions has."""
        plain: dict[str, Any] = handler(self)
        if not self.further_asks:
            del plain["further_asks"]
        return plain
