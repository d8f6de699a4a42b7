"""`Stretch`: equal decode steps of one batch, one after another, as one piece of time in closed form."""

import math
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Stretch", "stretch_of"]

_STRAIGHT = 1e-6
"""Largest relative distance of a step's time from the straight line that stands for it."""


@dataclass(slots=True)
class Stretch:
    """`steps` engine steps from `start_ms` on: the first takes `first_ms`, each next one `more_ms` longer."""

    start_ms: float
    steps: int
    first_ms: float
    more_ms: float = 0.0

    def length_ms(self, steps: int) -> float:
        """Of the first so many steps."""
        return steps * (self.first_ms + self.more_ms * (steps - 1) / 2.0)

    @property
    def end_ms(self) -> float:
        """When the last step ends."""
        return self.start_ms + self.length_ms(self.steps)

    def steps_until(self, now_ms: float) -> int:
        """How many steps it takes, at least one, until the end of the step that runs at `now_ms`."""
        wanted = now_ms - self.start_ms
        if wanted <= self.first_ms:
            return 1
        half = self.more_ms / 2.0
        linear = self.first_ms - half
        # The root of half n^2 + linear n = wanted, in the form that a small `half` does not upset.
        root = 2.0 * wanted / (linear + math.sqrt(max(0.0, linear * linear + 4.0 * half * wanted)))
        steps = max(1, min(self.steps, math.ceil(root)))
        while steps < self.steps and self.length_ms(steps) < wanted:
            steps += 1
        while steps > 1 and self.length_ms(steps - 1) >= wanted:
            steps -= 1
        return steps


def stretch_of(
    decode_ms: Callable[[int, int], float], *, start_ms: float, sequences: int, context_tokens: int, steps: int
) -> Stretch:
    """The longest stretch of at most `steps` steps whose times are a straight line within one part in a million.

    Every sequence's context grows by a token a step. A linear model gives all steps at once; a bent one is halved until
    the line holds at its middle, which is proof for every model whose line bends one way only.
    """
    first_ms = decode_ms(sequences, context_tokens)
    while steps > 1:
        last_ms = decode_ms(sequences, context_tokens + (steps - 1) * sequences)
        more_ms = (last_ms - first_ms) / (steps - 1)
        middle = (steps - 1) // 2
        middle_ms = decode_ms(sequences, context_tokens + middle * sequences)
        if abs(first_ms + more_ms * middle - middle_ms) <= _STRAIGHT * middle_ms:
            return Stretch(start_ms, steps, first_ms, more_ms)
        steps //= 2
    return Stretch(start_ms, 1, first_ms)
