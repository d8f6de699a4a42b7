"""One answer in the making, as the engine's loop sees it."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from hpcserve.simengine.pool import Block
from hpcserve.simengine.pull import Pull

__all__ = ["Finish", "Generation", "Put"]

Finish = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True)
class Put:
    """One step's outcome for one answer: a token, an end, or both."""

    answer: int
    """Which answer of its request."""
    token: int | None
    finish: Finish | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Generation:
    """A prompt, how much may follow it, and where the answer goes: its last Put has a finish."""

    id: str
    answer: int
    """Which answer of its request."""
    puts: asyncio.Queue[Put]
    """Shared by all answers of a request."""
    prompt: tuple[int, ...]
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    salt: str
    sample: int
    pull: Pull | None
    keep_for_remote: bool
    """do_remote_decode: keep the KV for another engine when the answer is complete."""
    arrived_s: float
    blocks: list[Block] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    """Prefix-cache keys of the prompt's full blocks, and of the answer's as they fill."""
    cached_tokens: int = 0
    """Prompt tokens whose KV the prefix cache had."""
    external_tokens: int = 0
    """Prompt tokens whose KV another engine gave."""
    computed: int = 0
    """Tokens whose KV is in the blocks."""
    output: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    """Prompt and output."""
    state: bytes | None = None
    pulling: asyncio.Task[None] | None = None
    last_put_s: float | None = None
    finished: bool = False

    @property
    def kept_block_ids(self) -> list[int]:
        """Numbers of the blocks that hold the computed tokens."""
        return [block.number for block in self.blocks]

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt)
