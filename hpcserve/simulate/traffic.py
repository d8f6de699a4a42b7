"""What arrives: `Arrival`s one after another, from a process and lengths, or from a trace."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

from hpcserve.simulate.draws import Draws

__all__ = ["Arrival", "Lengths", "Offered", "Trace", "Traffic"]

_MS_PER_S = 1e3


@dataclass(frozen=True, slots=True)
class Lengths:
    """One request's tokens. `cached_tokens` of the input are in the prefix cache of whoever computes prefill."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError where nothing would be computed or made."""
        if self.input_tokens < 1 or self.output_tokens < 1 or not 0 <= self.cached_tokens < self.input_tokens:
            raise ValueError(
                f"{self}: at least one token in, one out, and one of the input that is not cached were wanted"
            )


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request: when it comes, in ms since the start, and its tokens."""

    at_ms: float
    lengths: Lengths


class Traffic(Protocol):
    """What a simulation is fed with."""

    @property
    def requests(self) -> int:
        """How many come."""

    @property
    def rate(self) -> float:
        """Requests a second, on average."""

    @property
    def typical(self) -> Lengths:
        """The mean request, nothing of it cached."""

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        """Them, in order of time; the same for the same seed. They are made as they are asked for."""

    def at_rate(self, rate: float) -> Self:
        """The same requests at another mean rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """Requests from an arrival process; each one's lengths are drawn from `lengths`, each as likely.

    `poisson`: independent arrivals. `gamma`: gaps of that coefficient of variation, burstier than Poisson above 1.
    `fixed`: one every 1/rate seconds. All gaps are scaled so that the last request comes at requests ÷ rate, as
    `hpcserve.bench` and `vllm bench serve` do: a short run does not offer another rate by chance. Gaps and lengths are
    drawn from streams of their own: another rate has the same requests at stretched times.
    """

    rate: float
    requests: int
    lengths: Sequence[Lengths]
    process: Literal["poisson", "gamma", "fixed"] = "poisson"
    variation: float = 1.0
    """Of the gaps, for `gamma`: their standard deviation ÷ their mean."""

    def __post_init__(self) -> None:
        """Raises ValueError for what is no traffic."""
        if not (math.isfinite(self.rate) and self.rate > 0) or self.requests < 1 or not self.lengths:
            raise ValueError("a rate above 0, at least one request and at least one pair of lengths were wanted")
        if not (math.isfinite(self.variation) and self.variation > 0):
            raise ValueError(f"gaps with a coefficient of variation of {self.variation} cannot be drawn")

    @property
    def typical(self) -> Lengths:
        """See `Traffic`."""
        return _mean(self.lengths)

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        """See `Traffic`."""
        choice = Draws(seed, "lengths")
        scale_ms = self.requests / self.rate * _MS_PER_S / sum(self._gaps(seed))
        gone = 0.0
        for gap in self._gaps(seed):
            gone += gap
            lengths = self.lengths[0] if len(self.lengths) == 1 else choice.one_of(self.lengths)
            yield Arrival(gone * scale_ms, lengths)

    def _gaps(self, seed: int) -> Iterator[float]:
        """Between arrivals, in no unit."""
        draws, shape = Draws(seed, "gaps"), 1.0 / self.variation**2
        for _ in range(self.requests):
            if self.process == "fixed":
                yield 1.0
            else:
                yield draws.gamma(shape) if self.process == "gamma" else draws.exponential()

    def at_rate(self, rate: float) -> "Offered":
        """See `Traffic`."""
        return replace(self, rate=rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Requests as they were once seen, in order of time; `stretch` times as slow. There is nothing to draw."""

    seen: tuple[Arrival, ...]
    stretch: float = 1.0

    def __post_init__(self) -> None:
        """Raises ValueError for a trace without requests."""
        if not self.seen or not (math.isfinite(self.stretch) and self.stretch > 0):
            raise ValueError("at least one request and a stretch above 0 were wanted")

    @property
    def requests(self) -> int:
        """How many there are."""
        return len(self.seen)

    @property
    def rate(self) -> float:
        """Requests ÷ the time of the last one; infinite where all come at once."""
        span_s = self.seen[-1].at_ms * self.stretch / _MS_PER_S
        return len(self.seen) / span_s if span_s else math.inf

    @property
    def typical(self) -> Lengths:
        """See `Traffic`."""
        return _mean([one.lengths for one in self.seen])

    def arrivals(self, seed: int) -> Iterator[Arrival]:
        """See `Traffic`."""
        del seed
        return (Arrival(one.at_ms * self.stretch, one.lengths) for one in self.seen)

    def at_rate(self, rate: float) -> "Trace":
        """The trace at another mean rate, all gaps stretched alike; raises ValueError where all come at once."""
        if math.isinf(self.rate):
            raise ValueError("all requests of this trace come at once: it has no rate to change")
        return replace(self, stretch=self.stretch * self.rate / rate)


def _mean(lengths: Sequence[Lengths]) -> Lengths:
    count = len(lengths)
    return Lengths(
        round(sum(one.input_tokens for one in lengths) / count),
        round(sum(one.output_tokens for one in lengths) / count),
    )
