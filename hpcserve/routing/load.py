"""What a worker is doing now, and how long such things take."""

from dataclasses import dataclass

__all__ = ["Load", "Typical"]


@dataclass(slots=True, kw_only=True)
class Load:
    """Requests that one worker has now. The router counts; `choose` only reads."""

    in_flight: int = 0
    """Legs sent and not ended."""
    transfers: int = 0
    """Of those, decode legs that wait for their KV: they share the worker's link."""


@dataclass(slots=True, kw_only=True)
class Typical:
    """How long things took lately, for weighing a queue against a path."""

    prefill_ms: float
    """One prefill leg."""
    decode_step_ms: float
    """One token of a running stream: what a further request on the same worker costs it at least."""

    def saw_prefill(self, ms: float) -> None:
        """Take one measured prefill leg into the mean."""
        self.prefill_ms += _WEIGHT * (ms - self.prefill_ms)

    def saw_decode_step(self, ms: float) -> None:
        """Take one measured decode step into the mean."""
        self.decode_step_ms += _WEIGHT * (ms - self.decode_step_ms)


_WEIGHT = 0.05
"""About the last 20 observations: follows a change of workload, passes over one long prompt."""
