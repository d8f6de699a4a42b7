"""`Plan`: which worker goes where and why. `Ask`: what Slurm is asked for."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Name, Noun, Positive, PositiveInt, Text
from hpcserve.nouns.service import Distance, Mode, Role

__all__ = ["Ask", "PathCost", "Plan", "PlannedWorker", "Rank", "RouterSeat", "Verdict"]

Port = Annotated[int, Field(ge=1, le=65535)]


class Rank(Noun):
    """The share of one worker on one node. GPU and core numbers are the node's own, from 0."""

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
    tensor_parallel: PositiveInt
    port: Port | None = None
    """HTTP, on the first rank's control address; None before nodes are granted."""
    side_channel_port: Port | None = None
    """First of `tensor_parallel` contiguous ports of the KV handshake; None before nodes are granted."""

    @property
    def node(self) -> str:
        """The node that answers HTTP for this worker."""
        return self.ranks[0].node


class PathCost(Noun):
    """What moving one typical request's KV from one prefill to one decode worker costs, alone on the path."""

    prefill: Name
    decode: Name
    distance: Literal["same-node", "same-leaf", "across-leaves"]
    hops: tuple[Text, ...]
    """Every link passed, in order: `node01.data0`, `leaf1`, ..."""
    gb_per_s: Positive
    """One-way, of the slowest link."""
    kv_bytes: PositiveInt
    transfer_ms: Positive
    kind: Literal["predicted"] = "predicted"
    source: Text
    """Where the rate of the slowest link comes from."""


class Verdict(Noun):
    """Whether disaggregation pays on these paths, in words."""

    disaggregate: bool
    reasons: Annotated[tuple[Text, ...], Field(min_length=1)]
    worst_transfer_ms: Positive | None
    prefill_ms: Positive | None
    """Predicted compute of one typical prefill; None where the speed is not known."""


class RouterSeat(Noun):
    """Where the router runs."""

    node: Name
    port: Port | None = None


class Ask(Noun):
    """What Slurm is asked for. `nodelist` is exact; `switches` is the largest number of leaf switches."""

    partition: Name | None
    nodes: PositiveInt
    gpus_per_node: PositiveInt
    nodelist: tuple[Name, ...] | None = None
    switches: PositiveInt | None = None


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

    def worker(self, worker_id: str) -> PlannedWorker:
        """The worker of that id; KeyError where there is none."""
        for worker in self.workers:
            if worker.id == worker_id:
                return worker
        raise KeyError(worker_id)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes that carry workers or the router, sorted."""
        used = {rank.node for worker in self.workers for rank in worker.ranks} | {self.router.node}
        return tuple(sorted(used))
