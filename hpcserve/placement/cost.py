"""What it costs to hand KV from one placed worker to another."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpcserve.fabric import Fabric, FabricPath, GpuAt, PathDistance, rank_flows
from hpcserve.model import stage_bytes
from hpcserve.nouns import ModelShape
from hpcserve.units import transfer_ms

__all__ = ["Handover", "handover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """One request's KV from all ranks and stages of one worker to those of another, nothing else on the links."""

    distance: PathDistance
    hops: tuple[str, ...]
    """Of the slowest pair of ranks; of those equally slow, one with most hops."""
    gb_per_s: float
    """Of all pairs of ranks together, one way."""
    kv_bytes: int
    transfer_ms: float
    source: str
    rank_paths: int
    """Pairs of ranks that share the KV."""


def handover(
    fabric: Fabric,
    shape: ModelShape,
    *,
    tokens: int,
    prefill: Sequence[Sequence[GpuAt]],
    decode: Sequence[Sequence[GpuAt]],
) -> Handover:
    """The cost of handing over `tokens` tokens; the GPUs of each stage, as many of both, in rank order.

    Each stage hands its layers' KV to the same stage of the other worker, all at once. Every link takes the time of all
    bytes that cross it, and the slowest link decides. Where paths see one link at several rates (one pair was measured
    by itself), each takes its time at its own. Raises PlacementError where there is no path.
    """
    needed_ms: dict[str, float] = {}
    flows: list[tuple[FabricPath, float]] = []
    for stage, (senders, receivers) in enumerate(zip(prefill, decode, strict=True)):
        kept = stage_bytes(shape, tokens, stages=len(decode), tensor_parallel=len(receivers))[stage]
        for sender, receiver, share in rank_flows(len(senders), len(receivers)):
            path = fabric.path(senders[sender], receivers[receiver])
            flows.append((path, share * kept))
            for link in path.links:
                ms = transfer_ms(size_bytes=share * kept, gb_per_s=link.gb_per_s)
                needed_ms[link.name] = needed_ms.get(link.name, 0.0) + ms
    slowest, binding = max(
        ((path, link) for path, _ in flows for link in path.links),
        key=lambda candidate: (needed_ms[candidate[1].name], len(candidate[0].hops)),
    )
    ms = needed_ms[binding.name]
    moved = round(sum(size for _, size in flows))
    return Handover(
        distance=slowest.distance,
        hops=slowest.hops,
        gb_per_s=slowest.gb_per_s if len(flows) == 1 else moved / ms / 1e6,
        kv_bytes=moved,
        transfer_ms=ms,
        source=binding.source,
        rank_paths=len(flows),
    )
