"""Which rank of one worker hands KV to which rank of another."""

from collections.abc import Iterator

__all__ = ["rank_flows"]


def rank_flows(prefill_ranks: int, decode_ranks: int) -> Iterator[tuple[int, int, float]]:
    """Which prefill rank sends to which decode rank what share of all that the latter keeps.

    vLLM's NIXL connector: with equal parallelism rank i reads from rank i; else the side with fewer ranks is shared or
    gathered in equal, consecutive parts.
    """
    if prefill_ranks <= decode_ranks:
        for rank in range(decode_ranks):
            yield rank * prefill_ranks // decode_ranks, rank, 1.0
    else:
        fan_in = prefill_ranks // decode_ranks
        for rank in range(prefill_ranks):
            yield rank, rank // fan_in, 1 / fan_in
