"""What engines count of themselves, read every few seconds: room for KV, transfer times, prefix hits."""

from collections.abc import Iterator

from hpcserve.engines import EngineCounters
from hpcserve.nouns import Endpoint, Role
from hpcserve.router.ask import AskError
from hpcserve.router.counters import CounterReader
from hpcserve.router.exposition import Series, series_of
from hpcserve.router.roster import Roster

__all__ = ["Reports"]

_COUNTED = (
    ("worker_kv_transfers", "KV transfers that this worker pulled.", "xfer_count"),
    ("worker_kv_transfer_bytes", "Bytes of them.", "xfer_bytes"),
    ("worker_kv_transfer_seconds", "Their own times, added.", "xfer_seconds"),
    ("worker_kv_transfer_failures", "Transfers that failed.", "xfer_failed"),
    ("worker_kv_expired", "Prompts whose KV was given up before a pull.", "kv_expired"),
    ("worker_late_pulls", "Pulls that ended after their lease.", "late_notices"),
    ("worker_prefix_hit_tokens", "Prompt tokens found in the worker's own cache.", "local_hit_tokens"),
    ("worker_prefix_query_tokens", "Prompt tokens looked for there.", "prefix_query_tokens"),
)


class Reports:
    """The last counters of each worker, and what follows from how they have grown."""

    def __init__(self, roster: Roster, counters: CounterReader) -> None:
        self._roster = roster
        self._counters = counters
        self._seen: dict[str, tuple[str, EngineCounters]] = {}

    async def look(self, endpoint: Endpoint) -> None:
        """Read one worker's counters; one that does not answer is somebody else's to judge."""
        try:
            found = await self._counters.of(endpoint)
        except AskError:
            return
        self.take(endpoint, found)

    def take(self, endpoint: Endpoint, found: EngineCounters) -> None:
        """What a worker's counters say now."""
        roster = self._roster
        roster.load_of(endpoint).kv_room_tokens = found.kv_room_tokens
        generation, before = self._seen.get(endpoint.id, ("", found))
        self._seen[endpoint.id] = (endpoint.generation, found)
        if generation != endpoint.generation or found.xfer_count < before.xfer_count:
            roster.paths.started_anew(endpoint.id)
        elif endpoint.role == Role.DECODE:
            roster.reported(
                endpoint,
                transfers=found.xfer_count - before.xfer_count,
                seconds=found.xfer_seconds - before.xfer_seconds,
            )

    def series(self) -> Iterator[Series]:
        """What the workers of now have counted."""
        current = {endpoint.id: endpoint.generation for endpoint in self._roster.endpoints}
        seen = {
            name: found for name, (generation, found) in self._seen.items() if current.get(name) == generation
        }  # fmt: skip
        for name, help_text, attribute in _COUNTED:
            values = {(worker,): float(getattr(found, attribute)) for worker, found in seen.items()}
            yield series_of("counter", name, help_text, ("worker",), values)
