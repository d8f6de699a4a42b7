"""Batches of a publisher in their order, each once: what came twice is dropped, what is missing is asked for again.

A ZeroMQ publisher drops what a subscriber is too slow for, and tells nobody. vLLM numbers its batches from 0 and keeps
the last ones (`buffer_steps`, 10,000) for a replay; a replay may come with gaps or without its end, as a ROUTER socket
drops as well. A subscription brings numbers that rise; where they fall, the publisher has begun anew.
"""

from dataclasses import dataclass

__all__ = ["EventOrder", "Lost"]

_MOST_HELD = 4096
"""Batches that wait for those before them; later ones come by the next replay."""


@dataclass(frozen=True, slots=True)
class Lost:
    """So many batches cannot be had any more: what was known before them may be wrong now."""

    batches: int
    """0: none is known to be missing, but the numbers have begun anew, and so has what the publisher holds."""


Step = bytes | Lost
"""What to do next: apply this payload, or forget."""


class EventOrder:
    """One subscription. `replays`: whether the publisher can be asked for what is missing."""

    def __init__(self, *, replays: bool = True) -> None:
        self.next = 0
        """Number of the batch that is to be applied next."""
        self.wanted = replays
        """Whether a replay from `next` on is to be asked for; at the start all that the publisher still has."""
        self._replays = replays
        self._held: dict[int, bytes] = {}
        self._last_live = -1
        self._before = -1
        """`next` when the replay that runs was asked for."""
        self._first = False
        self._cut = False

    def live(self, number: int, payload: bytes) -> list[Step]:
        """A batch that the subscription brought; what to do now, in order."""
        if number < self._last_live:
            self.next, self._last_live, self.wanted = 0, -1, self._replays
            self._held.clear()
            return [Lost(0), *self.live(number, payload)]
        self._last_live = number
        if number < self.next:
            return []
        if number == self.next and not self.wanted:
            return self._apply(payload)
        if not self._replays:
            lost = Lost(number - self.next)
            self.next = number
            return [lost, *self._apply(payload)]
        self.wanted = True
        if len(self._held) < _MOST_HELD:
            self._held[number] = payload
        return []

    def replay_began(self) -> int:
        """A replay is asked for now; from which number on."""
        self._before = self.next
        self._first, self._cut = True, False
        return self.next

    def replayed(self, number: int, payload: bytes) -> list[Step]:
        """A batch of the replay. Behind a gap nothing is taken: it was cut off there, and is asked for again."""
        steps: list[Step] = []
        if self._first and number > self.next:  # the publisher does not have the ones before any more
            steps.append(Lost(number - self.next))
            self.next = number
        self._first = False
        self._cut = self._cut or number > self.next
        return [*steps, *self._apply(payload)] if number == self.next else steps

    def replay_ended(self, *, whole: bool = True) -> list[Step]:
        """The replay is over (`whole`: its end came as well); then `wanted` says whether another one is needed."""
        steps: list[Step] = self._from_held()
        progress = self.next > self._before
        self.wanted = progress and (self._cut or not whole)
        if self._held:
            if progress:
                self.wanted = True
            else:  # twice the same question, and nothing came of it
                number = min(self._held)
                steps.append(Lost(number - self.next))
                self.next = number
                steps += self._from_held()
                self.wanted = bool(self._held)
        return steps

    def _apply(self, payload: bytes) -> list[Step]:
        self.next += 1
        return [payload, *self._from_held()]

    def _from_held(self) -> list[Step]:
        steps: list[Step] = []
        held = self._held
        if held and min(held) < self.next:
            for number in [one for one in held if one < self.next]:
                del held[number]
        while self.next in held:
            steps.append(held.pop(self.next))
            self.next += 1
        return steps
