"""KV transfers as the workers that pull them count them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

from hpcserve.engines import read_counters
from hpcserve.errors import ServiceError
from hpcserve.nouns import Endpoint

__all__ = ["Tally", "read_tally"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Transfers since the workers' starts, summed over them. `cached_tokens`: prompt tokens that needed no transfer."""

    count: int = 0
    bytes: int = 0
    failed: int = 0
    seconds: float = 0.0
    cached_tokens: int = 0

    def __sub__(self, earlier: "Tally") -> "Tally":
        return Tally(
            count=self.count - earlier.count,
            bytes=self.bytes - earlier.bytes,
            failed=self.failed - earlier.failed,
            seconds=self.seconds - earlier.seconds,
            cached_tokens=self.cached_tokens - earlier.cached_tokens,
        )


async def read_tally(client: httpx.AsyncClient, pullers: Sequence[Endpoint]) -> Tally:
    """The tally now. Raises ServiceError where a worker does not answer or its text is not an engine's."""
    texts = await asyncio.gather(*(_metrics(client, puller) for puller in pullers))
    counters = [read_counters(text) for text in texts]
    return Tally(
        count=sum(each.xfer_count for each in counters),
        bytes=sum(each.xfer_bytes for each in counters),
        failed=sum(each.xfer_failed for each in counters),
        seconds=sum(each.xfer_seconds for each in counters),
        cached_tokens=sum(each.local_hit_tokens for each in counters),
    )


async def _metrics(client: httpx.AsyncClient, puller: Endpoint) -> str:
    try:
        answer = await client.get(f"{puller.url}/metrics")
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise ServiceError(f"{puller.id} does not show its counters: {error or type(error).__name__}") from None
    return answer.text
