"""`Room`: the KV of one worker, in tokens."""

from hpcserve.simulate.leg import Leg

__all__ = ["Room"]


class Room:
    """What is taken, by legs. `limit_tokens` None: there is always more."""

    __slots__ = ("limit_tokens", "most_tokens", "tokens")

    def __init__(self, limit_tokens: int | None) -> None:
        self.limit_tokens = limit_tokens
        self.tokens = 0
        self.most_tokens = 0

    def has(self, tokens: int) -> bool:
        """Whether there are so many more."""
        return self.limit_tokens is None or self.tokens + tokens <= self.limit_tokens

    def charge(self, leg: Leg, tokens: int) -> None:
        """The leg takes them."""
        leg.kv_tokens += tokens
        self.take(tokens)

    def take(self, tokens: int) -> None:
        """Legs that decode take them; each writes down its own when it leaves."""
        self.tokens += tokens
        self.most_tokens = max(self.most_tokens, self.tokens)

    def give_back(self, leg: Leg) -> None:
        """All that the leg has."""
        self.tokens -= leg.kv_tokens
        leg.kv_tokens = 0

    def steps(self, sequences: int) -> int | None:
        """How often that many sequences can take a token each; None: without end."""
        return None if self.limit_tokens is None else (self.limit_tokens - self.tokens) // sequences
