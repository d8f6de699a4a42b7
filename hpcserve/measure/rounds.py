"""Tasks in rounds, so that what runs at the same time shares nothing."""

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

__all__ = ["rounds_of"]

T = TypeVar("T")


def rounds_of(tasks: Iterable[T], *, holds: Callable[[T], Iterable[Hashable]]) -> tuple[tuple[T, ...], ...]:
    """Every task in one round; no two of a round hold the same thing. The order of the tasks is kept within a round.

    First fit: each task goes into the first round where all that it holds is free, so a task is never later than the
    number of those it clashes with. Colouring with the fewest rounds is NP-hard (Holyer 1981, for edges); pairs in the
    order of a round robin come out close to it.
    """
    taken: dict[Hashable, int] = {}  # thing -> rounds it is held in, as bits
    rounds: list[list[T]] = []
    for task in tasks:
        things = tuple(holds(task))
        busy = 0
        for thing in things:
            busy |= taken.get(thing, 0)
        number = (~busy & (busy + 1)).bit_length() - 1  # the lowest bit that is 0
        for thing in things:
            taken[thing] = taken.get(thing, 0) | 1 << number
        if number == len(rounds):
            rounds.append([])
        rounds[number].append(task)
    return tuple(tuple(each) for each in rounds)
