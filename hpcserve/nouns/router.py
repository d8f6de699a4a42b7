"""What the router of a job writes: where it listens, and what it has proved."""

from typing import Annotated, Literal

from pydantic import Field

from hpcserve.nouns.base import Name, Noun, PositiveInt, Text

__all__ = ["PairProof", "RouterAddress", "RouterState"]


class RouterAddress(Noun):
    """`router.json`: written when the router listens."""

    schema_: Annotated[Literal["hpcserve.router/1"], Field(alias="schema")] = "hpcserve.router/1"
    url: Annotated[str, Field(pattern=r"^http://[^/]+$")]
    node: Name
    pid: PositiveInt


class PairProof(Noun):
    """What came of proving one pair, or one worker that serves alone (`prefill` is None)."""

    prefill: Name | None
    prefill_generation: Text | None
    decode: Name
    decode_generation: Text
    proved: bool
    reason: str
    """In words: what was seen, and for a failure what was wrong with it."""


class RouterState(Noun):
    """`router.state.json`: what was proved, and whether clients are served."""

    schema_: Annotated[Literal["hpcserve.router-state/1"], Field(alias="schema")] = "hpcserve.router-state/1"
    ready: bool
    """Every planned worker was proved once, and at least one route is proved and alive now."""
    ready_since_utc: Text | None
    """When `ready` last became true; None while it is not."""
    waiting_for: tuple[Text, ...]
    """What is missing, one sentence each: workers that are not announced, pairs that are not proved."""
    proofs: tuple[PairProof, ...]
    mismatches: tuple[Text, ...]
    """Pairs that are never tried, each with the fact on which the two differ."""
    kv_doubts: tuple[Text, ...] = ()
    """What is in the way of the KV events that the service wants, one sentence each; routes are remembered instead."""
