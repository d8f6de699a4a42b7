"""Whether what the index says of a worker can be believed, judged by what the worker's own counters show.

Silent failure is what this is for: events that never come, tokens that are not the engine's, hashes that mean something
else. All of these look like an index that works, and send requests to the wrong worker for good.
"""

from dataclasses import dataclass

__all__ = ["Evidence", "Trust"]

_WINDOW_TOKENS = 2048
_WINDOW_PROMPTS = 8
"""A judgement rests on at least so many predicted tokens of so many prompts: one evicted prefix is no failure."""
_TOO_FEW = 0.5
"""Share of the predicted hits that must show. Blocks are evicted between the choice and the prefill, so not all do."""
_ENOUGH = 0.8
_BAD_WINDOWS = 2
_GOOD_WINDOWS = 2
_SILENT_S = 10.0
_SILENT_TOKENS = 1024
"""So many tokens computed and no event within 10 s after: a block of any usual size has been filled many times."""
_USELESS_BLOCKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One look at a worker: sums since its start, taken at the same time."""

    predicted_tokens: int
    """Hits that were predicted, of prompts whose first token is there."""
    predicted_prompts: int
    hit_tokens: int
    """Prompt tokens found in the engine's own prefix cache."""
    prompt_tokens: int
    batches: int
    """Batches of events that came."""
    stored_blocks: int
    unplaced_blocks: int
    """Blocks that events told of and that could not be placed: orphans, other groups, other sizes."""


class Trust:
    """One life of one worker. `reason` is empty while it is believed, else it says why not, in words."""

    def __init__(self) -> None:
        self.reason = ""
        self._start: Evidence | None = None
        self._good = 0
        self._bad = 0
        self._heard: Evidence | None = None
        self._heard_s = 0.0

    def judge(self, seen: Evidence, *, now_s: float) -> bool:
        """Take one look into account; whether the judgement changed."""
        before = self.reason
        self._hear(seen, now_s)
        self._compare(seen)
        return self.reason != before

    def probed(self, reason: str) -> bool:
        """A probe ended: a prefix that was sent twice was found where it should be, or `reason` says what was not."""
        before, self.reason = self.reason, reason
        self._good = self._bad = 0
        self._start = None
        return self.reason != before

    def _hear(self, seen: Evidence, now_s: float) -> None:
        """Whether the worker tells anything, and anything of use."""
        heard = self._heard
        if heard is None or seen.batches > heard.batches:
            self._heard, self._heard_s = seen, now_s
            if heard is not None and self.reason.startswith(_SILENT):
                self.reason = ""
        else:
            computed = (seen.prompt_tokens - heard.prompt_tokens) - (seen.hit_tokens - heard.hit_tokens)
            if computed >= _SILENT_TOKENS and now_s - self._heard_s >= _SILENT_S:
                self.reason = f"{_SILENT}: it computed {computed} prompt tokens and told nothing of its KV"
        if not seen.stored_blocks and seen.unplaced_blocks >= _USELESS_BLOCKS:
            self.reason = f"{_USELESS}: none of {seen.unplaced_blocks} blocks could be placed in a prompt"
        elif seen.stored_blocks and self.reason.startswith(_USELESS):
            self.reason = ""

    def _compare(self, seen: Evidence) -> None:
        """Whether predicted hits are hits."""
        if self._start is None:
            self._start = seen
            return
        predicted = seen.predicted_tokens - self._start.predicted_tokens
        prompts = seen.predicted_prompts - self._start.predicted_prompts
        if predicted < _WINDOW_TOKENS or prompts < _WINDOW_PROMPTS:
            return
        hits = seen.hit_tokens - self._start.hit_tokens
        self._start = seen
        self._bad = self._bad + 1 if hits < _TOO_FEW * predicted else 0
        self._good = self._good + 1 if hits >= _ENOUGH * predicted else 0
        if self._bad >= _BAD_WINDOWS:
            self.reason = f"{_WRONG}: {predicted} tokens were predicted to be cached, its counters show {hits}"
        elif self._good >= _GOOD_WINDOWS and self.reason.startswith(_WRONG):
            self.reason = ""


_SILENT = "no KV events come"
_USELESS = "its KV events are of no use"
_WRONG = "predicted hits do not show"
