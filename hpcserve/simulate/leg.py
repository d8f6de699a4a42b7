"""`Leg`: one request's stay at one worker; `Request`: the request itself."""

from enum import Enum, auto

from hpcserve.routing import Route
from hpcserve.simulate.traffic import Arrival

__all__ = ["Leg", "Request", "State"]


class State(Enum):
    """Where a leg is."""

    SENT = auto()
    """On its way to the worker."""
    WAITING = auto()
    PULLING = auto()
    """Its KV is on the way."""
    READY = auto()
    """Its KV is here; it joins at the next step."""
    PREFILLING = auto()
    DECODING = auto()
    HELD = auto()
    """Computed; its KV is kept until it is pulled."""
    GONE = auto()


class Request:
    """One request on its way through the service. Times in ms since the start; None until it is so far."""

    __slots__ = (
        "arrived_ms", "avoid", "cached_tokens", "coming_to", "computes", "computes_after", "computes_at", "decode_at",
        "decode_leg", "decode_sent_ms", "first_ms", "input_tokens", "keeps", "number", "output_tokens", "prefill_at",
        "prefill_leg", "prefilled_ms", "pulled_ms", "route", "sent_ms", "transferred_ms", "tries", "waits_for_kv",
        "whole",
    )  # fmt: skip

    def __init__(self, number: int, arrival: Arrival) -> None:
        self.number = number
        self.arrived_ms = arrival.at_ms
        self.input_tokens = arrival.lengths.input_tokens
        self.output_tokens = arrival.lengths.output_tokens
        self.cached_tokens = arrival.lengths.cached_tokens
        self.route: Route | None = None
        self.whole = ""
        """Why it must not be split any more."""
        self.avoid: frozenset[str] = frozenset()
        self.tries = 0
        self.prefill_leg: Leg | None = None
        self.decode_leg: Leg | None = None
        self.prefilled_ms: float | None = None
        self.pulled_ms: float | None = None
        """When its KV was asked for: as the decode worker's step ended and there was room."""
        self.transferred_ms: float | None = None
        self.first_ms: float | None = None
        # What the router has counted for it, and where; "" where nothing.
        self.prefill_at = self.coming_to = self.decode_at = self.computes_at = ""
        self.computes = self.computes_after = self.keeps = 0.0
        self.sent_ms = self.decode_sent_ms = 0.0
        self.waits_for_kv = False


class Leg:
    """What one worker knows of one request."""

    __slots__ = (
        "cached_tokens", "computed", "end_step", "hands_over", "input_tokens", "joined_step", "kv_tokens",
        "late_ms", "made",
        "number", "output_tokens", "pulls", "request", "state", "to_compute", "worker",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        worker: str,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int = 0,
        pulls: bool = False,
        hands_over: bool = False,
    ) -> None:
        self.request = request
        self.number = request.number
        self.worker = worker
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        """Tokens that this leg makes; 0 where its KV goes elsewhere."""
        self.cached_tokens = cached_tokens
        self.pulls = pulls
        """Whether its KV comes from a prefill worker."""
        self.hands_over = hands_over
        self.state = State.SENT
        self.computed = 0
        self.to_compute = input_tokens - cached_tokens
        self.made = 0
        self.kv_tokens = 0
        self.joined_step = 0
        self.end_step = 0
        self.late_ms = 0.0
        """From the end of its step in a pipeline's first stage to its end in the last."""

    @property
    def is_prefilling(self) -> bool:
        """Whether its prompt is begun."""
        return self.state is State.PREFILLING

    @property
    def is_decoding(self) -> bool:
        """Whether it gets a token each step."""
        return self.state is State.DECODING

    @property
    def is_running(self) -> bool:
        """Whether it takes part in steps."""
        return self.state is State.DECODING or self.state is State.PREFILLING

    @property
    def most_kv_tokens(self) -> int:
        """KV that it holds at its end."""
        return self.input_tokens - self.cached_tokens + self.output_tokens

    def room_at_start(self, *, reserves: bool) -> int:
        """KV for what comes from elsewhere, and all that follows where that is kept free for it."""
        return self.most_kv_tokens if reserves else self.input_tokens

    def start_again(self) -> None:
        """Everything so far is to be computed again, the tokens it made too."""
        self.state = State.WAITING
        self.computed = 0
        self.to_compute = self.input_tokens - self.cached_tokens + self.made
