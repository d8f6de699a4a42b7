"""`Draws`: random numbers that are the same on every machine, for a seed and a name.

SplitMix64: Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014. A counter goes by the
golden ratio's 64 bits and is mixed; there is no other state.
"""

import math
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Draws"]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST_MIX = 0xBF58476D1CE4E5B9
_SECOND_MIX = 0x94D049BB133111EB
_TO_UNIT = 2.0**-53
"""Of 64 bits the upper 53 make a double in [0, 1)."""

T = TypeVar("T")


class Draws:
    """A stream of draws. Streams of one seed with different names have nothing to do with one another."""

    def __init__(self, seed: int, name: str = "") -> None:
        self._counter = _mixed(seed & _MASK)
        for letter in name.encode():
            self._counter = _mixed((self._counter + _GOLDEN + letter) & _MASK)

    def uniform(self) -> float:
        """From 0 to 1, 1 left out."""
        self._counter = (self._counter + _GOLDEN) & _MASK
        return (_mixed(self._counter) >> 11) * _TO_UNIT

    def exponential(self) -> float:
        """Exponentially distributed with mean 1, by inversion."""
        return -math.log(1.0 - self.uniform())

    def gamma(self, shape: float) -> float:
        """Gamma distributed with this shape and mean `shape`; Marsaglia and Tsang, ACM TOMS 26 (2000), 363.

        Below shape 1 by their remark: a draw of shape + 1 times a uniform to the power of 1 / shape.
        """
        if shape < 1.0:
            return self.gamma(shape + 1.0) * math.pow(1.0 - self.uniform(), 1.0 / shape)
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self._normal()
            v = (1.0 + c * x) ** 3
            if v > 0.0 and math.log(1.0 - self.uniform()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return d * v

    def one_of(self, choices: Sequence[T]) -> T:
        """One of them, each as likely."""
        return choices[int(self.uniform() * len(choices))]

    def _normal(self) -> float:
        """Standard normal; Box and Muller, Annals of Mathematical Statistics 29 (1958), 610."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.uniform()))
        return radius * math.cos(2.0 * math.pi * self.uniform())


def _mixed(number: int) -> int:
    number = ((number ^ (number >> 30)) * _FIRST_MIX) & _MASK
    number = ((number ^ (number >> 27)) * _SECOND_MIX) & _MASK
    return number ^ (number >> 31)
