"""What each pair of seats adds to the cost of a seating."""

from collections.abc import Iterator
from dataclasses import dataclass

from hpcserve.errors import PlacementError
from hpcserve.fabric import Fabric, GpuAt, Link, rank_flows
from hpcserve.model import stage_bytes
from hpcserve.nouns import Distance, ModelShape
from hpcserve.placement.candidate import Seat
from hpcserve.placement.ground import Ground

__all__ = ["ACTIVATIONS", "Moved", "PairPrice", "Prices"]

_Hops = tuple[str, ...]
ACTIVATIONS = 1e6
"""Bytes that one stage hands to the next, whatever the model: every assignment moves the same, only rates differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPrice:
    """One handover of a typical request's KV from a stage of a prefill worker to that of a decode worker, alone.

    Or, with `between_ns` alone, what one stage of a worker hands to its next. Times are in whole nanoseconds.
    """

    slowest_ns: int
    """What the handover takes: what the slowest link needs for all that crosses it."""
    traffic_ns: int
    """What all links together need: how long they are taken from others."""
    hops: int
    """Switches and other hops passed, over all pairs of ranks."""
    loads: tuple[tuple[str, int], ...]
    """By link what it needs."""
    leaving_ns: int
    """What the link needs through which the first prefill rank's KV leaves its GPU."""
    arriving_ns: int
    """What the link needs through which the first decode rank's KV arrives at its GPU."""
    between_ns: int = 0
    """What the slowest link needs for a megabyte of activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Bytes of one handover: all of them, and the most and the least that one rank sends or gets."""

    whole: float
    of_a_rank: float
    least_of_a_rank: float


class Prices:
    """Prices of pairs of seats, each computed once; None where two may not be so placed, or no path joins them."""

    def __init__(
        self,
        fabric: Fabric,
        shape: ModelShape,
        *,
        tokens: int,
        distance: Distance,
        ground: Ground,
        stages: int = 1,
    ) -> None:
        self._stages = stages
        self._fabric = fabric
        self._shape = shape
        self._tokens = tokens
        self._distance = distance
        self._names = [candidate.name for candidate in ground.candidates]
        self._kept: dict[int, tuple[int, ...]] = {}
        self._flows: dict[tuple[int, int], tuple[tuple[int, int, float], ...]] = {}
        self._known: dict[tuple[Seat, Seat, int], PairPrice | None] = {}
        self._between: dict[tuple[Seat, Seat], PairPrice | None] = {}
        each = stage_bytes(shape, tokens, stages=stages)
        self.alike = tuple(map(each.index, each))
        """Of each stage the first one that keeps as much."""

    def on(self, ground: Ground) -> "Prices":
        """Prices of seats on another ground of the same fabric."""
        return Prices(
            self._fabric,
            self._shape,
            tokens=self._tokens,
            distance=self._distance,
            ground=ground,
            stages=self._stages,
        )

    @property
    def looked_up(self) -> int:
        """Pairs of seats that have been priced."""
        return len(self._known)

    def moved(self, prefill_ranks: int, decode_ranks: int, stage: int = 0) -> Moved:
        """What is moved between workers of so many ranks, of one stage."""
        kept = self._kept_by(decode_ranks)[stage]
        sent: dict[int, float] = {}
        for sender, _, share in rank_flows(prefill_ranks, decode_ranks):
            sent[sender] = sent.get(sender, 0.0) + share * kept
        ranks = (kept, *sent.values())
        return Moved(whole=sum(sent.values()), of_a_rank=max(ranks), least_of_a_rank=min(ranks))

    def __call__(self, prefill: Seat, decode: Seat, stage: int = 0) -> PairPrice | None:
        """The price of a handover from one seat to the other, of one stage's layers."""
        pair = (prefill, decode, self.alike[stage])
        try:
            return self._known[pair]
        except KeyError:
            price = self._known[pair] = self._priced(prefill, decode, stage)
            return price

    def between(self, stage: Seat, following: Seat) -> PairPrice | None:
        """The price of what one stage hands to the next, each rank its share to the rank of its number."""
        pair = (stage, following)
        if pair not in self._between:
            self._between[pair] = self._priced_between(stage, following)
        return self._between[pair]

    def _priced_between(self, stage: Seat, following: Seat) -> PairPrice | None:
        here, there = self._names[stage.node], self._names[following.node]
        loads: dict[str, float] = {}
        try:
            for gpu, next_gpu in zip(stage.gpus, following.gpus, strict=True):
                for link in self._fabric.path(GpuAt(here, gpu), GpuAt(there, next_gpu)).links:
                    loads[link.name] = loads.get(link.name, 0.0) + ACTIVATIONS / len(stage.gpus) / link.gb_per_s
        except PlacementError:
            return None
        return PairPrice(
            slowest_ns=0,
            traffic_ns=0,
            hops=0,
            loads=(),
            leaving_ns=0,
            arriving_ns=0,
            between_ns=round(max(loads.values())),
        )

    def _kept_by(self, ranks: int) -> tuple[int, ...]:
        """Bytes that one of so many ranks keeps, by stage."""
        if ranks not in self._kept:
            self._kept[ranks] = stage_bytes(self._shape, self._tokens, stages=self._stages, tensor_parallel=ranks)
        return self._kept[ranks]

    def _priced(self, prefill: Seat, decode: Seat, stage: int) -> PairPrice | None:
        names = self._names[prefill.node], self._names[decode.node]
        if self._distance not in (Distance.BEST, self._fabric.distance(*names)):
            return None
        loads: dict[str, float] = {}
        hops = 0
        ends: list[str] = []
        try:
            for passed, links, size_bytes in self._sent(prefill, decode, stage):
                hops += len(passed)
                ends = ends or [links[0].name, links[-1].name]
                for link in links:
                    loads[link.name] = loads.get(link.name, 0.0) + size_bytes / link.gb_per_s  # bytes / (GB/s) is ns
        except PlacementError:
            return None
        whole = {name: round(ns) for name, ns in loads.items()}
        return PairPrice(
            slowest_ns=max(whole.values()),
            traffic_ns=sum(whole.values()),
            hops=hops,
            loads=tuple(whole.items()),
            leaving_ns=whole[ends[0]],
            arriving_ns=whole[ends[1]],
        )

    def _sent(
        self, prefill: Seat, decode: Seat, stage: int
    ) -> Iterator[tuple[tuple[str, ...], tuple[Link, ...], float]]:
        """Hops and links of the path, and the bytes, of every pair of ranks."""
        ranks = len(prefill.gpus), len(decode.gpus)
        if ranks not in self._flows:
            self._flows[ranks] = tuple(rank_flows(*ranks))
        kept = self._kept_by(ranks[1])[stage]
        here, there = self._names[prefill.node], self._names[decode.node]
        for sender, receiver, share in self._flows[ranks]:
            ends = GpuAt(here, prefill.gpus[sender]), GpuAt(there, decode.gpus[receiver])
            yield *self._fabric.route(*ends), share * kept
