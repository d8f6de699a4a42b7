"""What it costs to hand KV from one placed worker to another."""

from collections.abc import Iterator
from dataclasses import dataclass

from hpcserve.fabric import Fabric, FabricPath, GpuAt, PathDistance
from hpcserve.nouns import ModelShape
from hpcserve.units import transfer_ms

__all__ = ["Handover", "handover", "rank_flows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """One request's KV from all ranks of one worker to all ranks of another, nothing else on the links."""

    distance: PathDistance
    hops: tuple[str, ...]
    """Of the slowest pair of ranks."""
    gb_per_s: float
    """Of all pairs of ranks together, one way."""
    kv_bytes: int
    transfer_ms: float
    source: str


def rank_flows(prefill_ranks: int, decode_ranks: int, kv_heads: int) -> Iterator[tuple[int, int, float]]:
    """Which prefill rank sends what share of the KV to which decode rank.

    vLLM's NIXL connector: with equal parallelism rank i reads from rank i; else the side with fewer ranks is shared or
    gathered in equal, consecutive parts. A rank holds at least one KV head, so shares add up to more than 1 where there
    are more ranks than KV heads.
    """
    share = max(1 / decode_ranks, 1 / kv_heads)
    if prefill_ranks <= decode_ranks:
        for rank in range(decode_ranks):
            yield rank * prefill_ranks // decode_ranks, rank, share
    else:
        fan_in = prefill_ranks // decode_ranks
        for rank in range(prefill_ranks):
            yield rank, rank // fan_in, share / fan_in


def handover(
    fabric: Fabric, shape: ModelShape, *, tokens: int, prefill: tuple[GpuAt, ...], decode: tuple[GpuAt, ...]
) -> Handover:
    """The cost of handing over `tokens` tokens; GPUs in rank order. Raises PlacementError where there is no path.

    Every link takes the time of all bytes that cross it, and the slowest link decides.
    """
    whole = tokens * shape.kv_bytes_per_token
    load: dict[str, float] = {}
    flows: list[tuple[FabricPath, float]] = []
    for sender, receiver, share in rank_flows(len(prefill), len(decode), shape.kv_heads):
        path = fabric.path(prefill[sender], decode[receiver])
        flows.append((path, share * whole))
        for link in path.links:
            load[link.name] = load.get(link.name, 0.0) + share * whole
    slowest, ms = max(
        (
            (path, transfer_ms(size_bytes=load[link.name], gb_per_s=link.gb_per_s))
            for path, _ in flows
            for link in path.links
        ),
        key=lambda candidate: candidate[1],
    )
    binding = max(slowest.links, key=lambda link: load[link.name] / link.gb_per_s)
    moved = round(sum(size for _, size in flows))
    return Handover(
        distance=slowest.distance,
        hops=slowest.hops,
        gb_per_s=slowest.gb_per_s if len(flows) == 1 else moved / ms / 1e6,
        kv_bytes=moved,
        transfer_ms=ms,
        source=binding.source,
    )
