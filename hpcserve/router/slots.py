"""Places on a decode worker's link, taken before the prefill leg: pulls that share a link all finish late.

Four pulls at once take four times as long each; one after the other they take two and a half times as long on the mean.
A pull cannot be held back once its prompt is prefilled, as its lease runs: so the place on the link comes first. A
prompt is sent to its prefill worker so that it is done about when the link is: the link stays busy and is not shared.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

__all__ = ["LinkSlots", "LinkTimes", "Slot"]

_AHEAD = 1.0
"""Pulls by which a prompt comes early: one is pulled, one is ready, as prefills take now longer, now shorter. In the
simulated queue of the tests half a pull loses throughput where times vary by half, and more only shares the link."""
_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTimes:
    """What a typical handoff to one decode worker takes: computing the prompt, and pulling alone on the link."""

    prefill_s: float
    pull_s: float

    @property
    def most(self) -> int:
        """Handoffs under way at the most, however wrong the times are: one pulls, two are next, the rest compute."""
        return 3 + ceil(self.prefill_s / self.pull_s)


def _nobody_is_told() -> None:
    """Stands for `granted` while a place is being taken."""


class Slot:
    """One handoff's place on a link, held or waited for."""

    __slots__ = ("_slots", "decode", "granted", "held", "pulling")

    def __init__(self, slots: "LinkSlots", decode: str, granted: Callable[[], None]) -> None:
        self._slots = slots
        self.granted = granted
        self.decode = decode
        self.held = False
        self.pulling = False
        """Whether its prompt is prefilled and its KV on its way."""

    def give_back(self) -> None:
        """The KV is there, or the handoff has come to nothing; or it waits no longer. Once is enough, twice no harm."""
        self._slots.give_back(self)


@dataclass(slots=True, kw_only=True)
class _Link:
    held: set[Slot] = field(default_factory=set)
    queue: deque[Slot] = field(default_factory=deque)
    idle_at_s: float = 0.0
    """When it will have carried all that was sent, by the estimate."""
    looks_at_s: float = float("inf")


class LinkSlots:
    """The places of all decode workers; first come, first served.

    `times` is asked anew each time; None: there is no limit. `later` calls something after so many seconds.
    """

    def __init__(
        self,
        times: Callable[[str], LinkTimes | None],
        *,
        now_s: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._times = times
        self._now_s = now_s
        self._later = later
        self._links: dict[str, _Link] = {}

    def take(self, decode: str, granted: Callable[[], None]) -> Slot:
        """A place, held at once where one is free; else `granted` is called once it is, never before this returns."""
        slot = Slot(self, decode, granted)
        link = self._links.get(decode)
        if link is None:
            link = self._links[decode] = _Link()
        times = self._times(decode)
        if not link.queue and self._wait_s(link, times) <= 0:
            self._hold(link, slot, times)
        else:
            slot.granted = _nobody_is_told  # who asks has no slot yet: it sees `held` when it has
            link.queue.append(slot)
            self.look(decode)
            slot.granted = granted
        return slot

    def give_back(self, slot: Slot) -> None:
        """See `Slot.give_back`."""
        link = self._links.get(slot.decode)
        if link is None:
            return
        if slot in link.held:
            link.held.discard(slot)
            slot.held = False
            self._correct(slot.decode, link)
        elif slot in link.queue:
            link.queue.remove(slot)
        if link.queue:
            self.look(slot.decode)

    def look(self, decode: str) -> None:
        """Grant what is free now, and look again when the next will be."""
        link = self._links.get(decode)
        if link is None:
            return
        while link.queue:
            times = self._times(decode)
            wait_s = self._wait_s(link, times)
            if wait_s > 0:
                self._look_later(decode, link, wait_s)
                return
            slot = link.queue.popleft()
            self._hold(link, slot, times)
            slot.granted()

    def release_all(self, decode: str) -> None:
        """The worker is gone: everybody who waits for it is granted, and will choose again."""
        link = self._links.get(decode)
        while link is not None and link.queue:
            slot = link.queue.popleft()
            self._hold(link, slot, None)
            slot.granted()

    def waiting(self, decode: str) -> int:
        """How many wait."""
        link = self._links.get(decode)
        return 0 if link is None else len(link.queue)

    def held(self, decode: str) -> int:
        """How many places are held."""
        link = self._links.get(decode)
        return 0 if link is None else len(link.held)

    def _hold(self, link: _Link, slot: Slot, times: LinkTimes | None) -> None:
        slot.held = True
        link.held.add(slot)
        if times is not None:
            link.idle_at_s = max(link.idle_at_s, self._now_s() + times.prefill_s) + times.pull_s

    def _correct(self, decode: str, link: _Link) -> None:
        """One has ended: what is left cannot take longer than its own pulls, so that a wrong estimate slows nobody."""
        times, now_s = self._times(decode), self._now_s()
        if times is not None:
            left_s = times.prefill_s + len(link.held) * times.pull_s if link.held else 0.0
            link.idle_at_s = min(link.idle_at_s, now_s + left_s)

    def _wait_s(self, link: _Link, times: LinkTimes | None) -> float:
        """How long until the next handoff may begin; infinite where another one must end first."""
        if times is None:
            return 0.0
        if len(link.held) >= times.most:
            return float("inf")
        if len(link.held) < times.most - 2 and not any(slot.pulling for slot in link.held):
            return 0.0  # nothing is on the link: no estimate shall keep it so
        return link.idle_at_s - self._now_s() - times.prefill_s - _AHEAD * times.pull_s

    def _look_later(self, decode: str, link: _Link, wait_s: float) -> None:
        if wait_s == float("inf"):
            return  # until one is given back
        wait_s = max(wait_s, _SHORTEST_S)
        at_s = self._now_s() + wait_s
        if at_s < link.looks_at_s - 1e-6:
            link.looks_at_s = at_s
            self._later(wait_s, lambda: self._woken(decode, link, at_s))

    def _woken(self, decode: str, link: _Link, at_s: float) -> None:
        if link.looks_at_s == at_s:
            link.looks_at_s = float("inf")
        self.look(decode)
