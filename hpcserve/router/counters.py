"""An engine's own counters, as a coroutine reads them."""

from collections.abc import Callable

from hpcserve.engines import EngineCounters
from hpcserve.errors import ServiceError
from hpcserve.nouns import Endpoint
from hpcserve.router.ask import AskError, ask
from hpcserve.router.pool import Pools

__all__ = ["CounterReader"]

_OK = 200
_TIMEOUT_S = 10.0


class CounterReader:
    """Reads `/metrics` of workers; `read` makes counters of its text."""

    def __init__(self, pools: Pools, read: Callable[[str], EngineCounters]) -> None:
        self._pools = pools
        self._read = read

    async def of(self, worker: Endpoint) -> EngineCounters:
        """The counters of a worker now. Raises AskError where it has none to show."""
        status, text = await ask(self._pools, worker, "/metrics", timeout_s=_TIMEOUT_S)
        if status != _OK:
            raise AskError(f"it answered /metrics with {status}")
        try:
            return self._read(text.decode(errors="replace"))
        except ServiceError as error:
            raise AskError(str(error)) from None
