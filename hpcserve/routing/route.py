"""What a choice can be: a route, or a refusal in OpenAI's form; and what a user may prefer."""

from dataclasses import dataclass

import msgspec

from hpcserve.nouns import Endpoint, Service
from hpcserve.routing.estimate import Estimate

__all__ = ["Preferences", "Refusal", "Route", "preferences_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferences:
    """What a user may set about choosing; as it stands, the least expected cost and every prompt split."""

    overlap_weight: float = 1.0
    """How much a cached token counts against one that is to be computed: 0 ignores the caches."""
    temperature: float = 0.0
    """0: the least cost. Above: workers are drawn, one that costs the share T more e times as seldom."""
    split_when_cheaper: bool = False
    """Prefill on the decode worker where the estimate says that it costs less than a handoff."""
    borrow_when_cheaper: bool = False
    """Both phases on one worker of either pool where the estimate says that it costs less than a handoff."""
    ttft_limit_ms: float = float("inf")
    """A request whose first token is expected later than this is refused with 429."""


def preferences_of(service: Service) -> Preferences:
    """What the service file says about choosing."""
    settings = service.router
    beyond = settings.refuse_beyond_slo
    return Preferences(
        overlap_weight=settings.overlap_weight,
        temperature=settings.temperature,
        split_when_cheaper=settings.split == "when-cheaper",
        borrow_when_cheaper=settings.borrow == "when-cheaper",
        ttft_limit_ms=float("inf") if beyond is None else beyond * service.slo.ttft_ms,
    )


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Who serves. `prefill` is None where `decode` serves both phases; `reason` then says why."""

    prefill: Endpoint | None
    decode: Endpoint
    transfer_ms: float = 0.0
    """The KV of a typical prompt, alone on the path."""
    reason: str = ""
    estimate: Estimate = Estimate()


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why nobody serves, as an OpenAI-style error."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after_s: int | None = None
