"""What a worker is doing now, and how long such things take."""

from dataclasses import dataclass
from math import inf

__all__ = ["UNKNOWN_PREFILL_MS", "UNKNOWN_STEP_MS", "Load", "Typical"]

UNKNOWN_PREFILL_MS = 100.0
"""A first guess where the plan has none; the mean of what is seen takes its place within some 20 requests."""
UNKNOWN_STEP_MS = 20.0
"""The same for one decode step."""


@dataclass(slots=True, kw_only=True)
class Load:
    """Requests that one worker has now. The router counts; `choose` only reads."""

    in_flight: int = 0
    """Legs sent and not ended."""
    prefills: int = 0
    """Of those, prefill legs: their KV goes elsewhere, and they make no tokens here."""
    transfers: int = 0
    """Of those, decode legs that wait for their KV: they share the worker's link."""
    coming: int = 0
    """Prefill legs at other workers whose KV this worker is to pull next."""
    prefill_tokens: float | None = None
    """Prompt tokens of its legs that wait to be computed; None: not counted, and each leg stands for a typical one."""
    kv_tokens: float = 0.0
    """Tokens whose KV its legs hold, or will hold at their end."""
    kv_room_tokens: int | None = None
    """Tokens of KV that it has room for; None: its engine has not said."""

    @property
    def serving(self) -> int:
        """Legs that decode here, or will."""
        return self.in_flight - self.prefills

    @property
    def decoding(self) -> int:
        """Of those, legs whose KV is here: a prefill holds them up."""
        return max(self.in_flight - self.prefills - self.transfers, 0)

    first_token_s: float | None = None
    """From a decode leg to its first token, lately; None: none came yet."""

    def saw_first_token(self, seconds: float) -> None:
        """Take one decode leg's time to its first token into the mean, or what it had waited when it was given up."""
        mean = self.first_token_s
        self.first_token_s = seconds if mean is None else mean + _WEIGHT * (seconds - mean)

    def stalls_after_s(self, expected_s: float) -> float:
        """After what wait a decode leg here stands still: 20 times what it should take; infinite before any came."""
        mean = self.first_token_s
        return inf if mean is None else max(_STALL_TIMES * max(mean, expected_s), _SHORTEST_STALL_S)

    def waits(self, tokens: float) -> None:
        """A leg was sent that computes so many prompt tokens before its first token."""
        self.prefill_tokens = (self.prefill_tokens or 0.0) + tokens

    def computed(self, tokens: float) -> None:
        """That leg has computed them, or has ended without."""
        self.prefill_tokens = max((self.prefill_tokens or 0.0) - tokens, 0.0)


@dataclass(slots=True, kw_only=True)
class Typical:
    """How long things took lately, for weighing a queue against a path."""

    prefill_ms: float
    """The prefill of one typical prompt alone."""
    decode_step_ms: float
    """One token of a running stream: what a further request on the same worker costs it at least."""
    prompt_tokens: float = 1.0
    """Length of that typical prompt, for which transfers are predicted as well; 1: prompts are counted, not tokens."""
    answer_tokens: float = 1.0
    """Tokens of a typical answer."""
    bytes_per_token: float = 4.0
    """Bytes of a request's body per prompt token: about four letters a token in English, until answers tell."""
    gap_ms: float = inf
    """From one request to the next; infinite: not known yet."""
    asked_tokens: float = 0.0
    """Prompt tokens of a request that are to be computed."""
    asked_ms: float | None = None
    """When the last one came."""
    handoff_ms: float = 0.0
    """What a handoff takes beside its bytes: the quickest first token of a decode leg lately."""

    @property
    def prefill_ms_per_token(self) -> float:
        """How long one prompt token takes."""
        return self.prefill_ms / self.prompt_tokens

    def prefill_share(self, workers: int) -> float:
        """The share of their time in which so many workers together compute all prompts that come; 1 at most."""
        needed_ms, there_ms = self.asked_tokens * self.prefill_ms_per_token, self.gap_ms * workers
        return needed_ms / there_ms if needed_ms < there_ms else 1.0

    def saw_request(self, *, at_ms: float, tokens: float) -> None:
        """Take in when a request came, and how many tokens of its prompt are to be computed, about.

        A pause counts as no more than 20 gaps, or 20 prompts' time: a quiet hour is none of the load that comes next.
        """
        if self.asked_ms is None:
            self.asked_tokens = tokens
        else:
            prompt_ms = max(self.asked_tokens * self.prefill_ms_per_token, 1.0)
            if self.gap_ms == inf:
                self.gap_ms = min(at_ms - self.asked_ms, prompt_ms / _WEIGHT)
            else:
                gap_ms = min(at_ms - self.asked_ms, max(self.gap_ms, prompt_ms) / _WEIGHT)
                self.gap_ms += _WEIGHT * (gap_ms - self.gap_ms)
            self.asked_tokens += _WEIGHT * (tokens - self.asked_tokens)
        self.asked_ms = at_ms

    def tokens_of(self, body_bytes: int, *, longest: int | None = None) -> float:
        """About how many prompt tokens a body of so many bytes holds; never more than the model takes."""
        tokens = max(body_bytes / self.bytes_per_token, 1.0)
        return tokens if longest is None else min(tokens, float(longest))

    def saw_prefill(self, ms: float, *, tokens: float | None = None) -> None:
        """Take one measured prefill leg into the mean: `ms` for `tokens`, its own and those it waited for."""
        whole_ms = ms if tokens is None else ms * self.prompt_tokens / max(tokens, 1.0)
        self.prefill_ms += _WEIGHT * (whole_ms - self.prefill_ms)

    def saw_prompt(self, *, body_bytes: int, tokens: int) -> None:
        """Take in how many tokens an engine made of a body."""
        if tokens > 0:
            self.bytes_per_token += _WEIGHT * (body_bytes / tokens - self.bytes_per_token)

    def saw_decode_step(self, ms: float) -> None:
        """Take one measured decode step into the mean."""
        self.decode_step_ms += _WEIGHT * (ms - self.decode_step_ms)

    def saw_handoff(self, ms: float) -> None:
        """Take in how long a decode leg took to its first token: the least of it lately is the handoff's own."""
        if not self.handoff_ms or ms < self.handoff_ms:
            self.handoff_ms = ms
        else:
            self.handoff_ms += _RISE * (ms - self.handoff_ms)


_STALL_TIMES = 20.0
"""A queue that grows under load lengthens the mean as well; a link that is cut lengthens one wait without end."""
_SHORTEST_STALL_S = 6.0
"""vLLM 0.32 gives a first handshake between two engines 5 s."""
_WEIGHT = 0.05
"""About the last 20 observations: follows a change of workload, passes over one long prompt."""
_RISE = 0.005
"""A least value rises over some 200 observations, so that one lucky handoff is forgotten in the end."""
