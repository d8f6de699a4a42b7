"""Places on a decode worker's link: who gets them, and that the mean time to first token falls."""

import heapq
import itertools
import random
import statistics
from collections import deque
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcserve.router.slots import LinkSlots, LinkTimes, Slot


class Handoffs:
    """A decode worker's link, shared evenly by the pulls under way, behind prefill workers that take one at a time."""

    def __init__(
        self, *, prefills: int, prefill_ms: float, pull_ms: float, times: LinkTimes | None, spread: float = 0.0
    ) -> None:
        self._idle = prefills
        self._prefill_ms = prefill_ms
        self._pull_ms = pull_ms
        self._spread = spread
        self._dice = random.Random(9)  # noqa: S311 - a simulation
        self._slots = LinkSlots(
            lambda _: times,
            now_s=lambda: self._now / 1000,
            later=lambda wait_s, what: self._at(self._now + wait_s * 1000, what),
        )
        self._queue: deque[int] = deque()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._left: dict[int, float] = {}
        self._places: dict[int, Slot] = {}
        self._began: dict[int, float] = {}
        self._now = self._looked = 0.0
        self.ttft_ms: list[float] = []
        self.most_pulls = 0

    def run(self, arrivals_ms: Sequence[float]) -> None:
        for number, at_ms in enumerate(arrivals_ms):
            self._at(at_ms, lambda number=number: self._arrive(number))  # type: ignore[misc]
        while self._events or self._left:
            due = min(self._left.values(), default=float("inf")) * len(self._left)
            at_ms = self._events[0][0] if self._events else float("inf")
            self._move(min(at_ms, self._now + due))
            if at_ms <= self._now + 1e-9 and self._events:
                heapq.heappop(self._events)[2]()
            for number in [each for each, left in self._left.items() if left <= 1e-9]:
                del self._left[number]
                self.ttft_ms.append(self._now - self._began[number])
                self._places.pop(number).give_back()

    def _at(self, at_ms: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_ms, next(self._count), what))

    def _move(self, to_ms: float) -> None:
        if self._left:
            each = (to_ms - self._now) / len(self._left)
            self._left = {number: left - each for number, left in self._left.items()}
        self._now = to_ms

    def _arrive(self, number: int) -> None:
        self._began[number] = self._now
        self._places[number] = slot = self._slots.take("d", lambda: self._prefill(number))
        if slot.held:
            self._prefill(number)

    def _prefill(self, number: int) -> None:
        self._queue.append(number)
        self._start()

    def _start(self) -> None:
        while self._idle and self._queue:
            self._idle -= 1
            number = self._queue.popleft()
            takes_ms = self._prefill_ms * self._dice.uniform(1 - self._spread, 1 + self._spread)
            self._at(self._now + takes_ms, lambda number=number: self._prefilled(number))  # type: ignore[misc]

    def _prefilled(self, number: int) -> None:
        self._idle += 1
        self._places[number].pulling = True
        self._left[number] = self._pull_ms * self._dice.uniform(1 - self._spread, 1 + self._spread)
        self.most_pulls = max(self.most_pulls, len(self._left))
        self._start()


def both_ways(
    arrivals_ms: Sequence[float], *, prefills: int, prefill_ms: float, pull_ms: float, spread: float = 0.0
) -> list[Handoffs]:
    made = []
    for times in (None, LinkTimes(prefill_s=prefill_ms / 1000, pull_s=pull_ms / 1000)):
        handoffs = Handoffs(prefills=prefills, prefill_ms=prefill_ms, pull_ms=pull_ms, times=times, spread=spread)
        handoffs.run(arrivals_ms)
        assert len(handoffs.ttft_ms) == len(arrivals_ms)
        made.append(handoffs)
    return made


def poisson(per_s: float, count: int) -> list[float]:
    dice, at_ms = random.Random(7), 0.0  # noqa: S311 - a simulation
    return [at_ms := at_ms + dice.expovariate(per_s / 1000) for _ in range(count)]


def test_four_at_once_finish_one_after_the_other() -> None:
    free, slotted = both_ways([0.0] * 4, prefills=4, prefill_ms=1.0, pull_ms=100.0)
    assert free.ttft_ms == pytest.approx([401.0] * 4)
    assert min(slotted.ttft_ms) < 300  # the next ones are ready in time, and share a little
    assert statistics.mean(slotted.ttft_ms) < 0.9 * 401
    assert max(slotted.ttft_ms) == pytest.approx(401)


@pytest.mark.parametrize(("load", "gain"), [(0.5, 0.95), (0.8, 0.85), (0.95, 0.9)])
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_the_mean_ttft_falls_where_the_link_is_what_is_short(load: float, gain: float, spread: float) -> None:
    """Poisson arrivals at a share of what the link carries; a pull takes twice as long as a prefill, give or take."""
    arrivals = poisson(load / 0.2, 2000)
    free, slotted = both_ways(arrivals, prefills=4, prefill_ms=100.0, pull_ms=200.0, spread=spread)
    assert statistics.mean(slotted.ttft_ms) < gain * statistics.mean(free.ttft_ms)
    assert max(slotted.ttft_ms) < max(free.ttft_ms)
    assert slotted.most_pulls < free.most_pulls


def test_nothing_is_lost_where_prefill_is_what_is_short() -> None:
    free, slotted = both_ways(poisson(9.0, 2000), prefills=1, prefill_ms=100.0, pull_ms=5.0)
    assert statistics.mean(slotted.ttft_ms) == pytest.approx(statistics.mean(free.ttft_ms), rel=1e-6)


@pytest.mark.parametrize("wrong", [0.2, 2.0])
@pytest.mark.parametrize(("prefill_ms", "pull_ms"), [(100.0, 200.0), (100.0, 20.0), (1.0, 100.0)])
def test_wrong_estimates_lose_little(prefill_ms: float, pull_ms: float, wrong: float) -> None:
    """Three hundred at once: what they take together is the throughput."""
    ended = []
    for times in (None, LinkTimes(prefill_s=prefill_ms / 1000, pull_s=wrong * pull_ms / 1000)):
        handoffs = Handoffs(prefills=4, prefill_ms=prefill_ms, pull_ms=pull_ms, times=times, spread=0.3)
        handoffs.run([0.0] * 300)
        ended.append(max(handoffs.ttft_ms))
    assert ended[1] < 1.5 * ended[0], ended


def slots_with(most: int) -> LinkSlots:
    """Places whose number alone is the limit: a clock that stands long after whatever was estimated."""
    clock = itertools.count(0, 1000)
    times = LinkTimes(prefill_s=1.0 * (most - 3) or 1e-9, pull_s=1.0)
    return LinkSlots(lambda _: times, now_s=lambda: float(next(clock)), later=lambda *_: None)


def test_a_worker_that_goes_leaves_nobody_waiting() -> None:
    granted: list[int] = []
    slots = slots_with(4)
    firsts = [slots.take("d", lambda: granted.append(0)) for _ in range(4)]
    others = [slots.take("d", lambda number=number: granted.append(number)) for number in (1, 2)]  # type: ignore[misc]
    assert [each.held for each in (*firsts, *others)] == [True] * 4 + [False] * 2
    assert (slots.waiting("d"), granted) == (2, [])
    slots.release_all("d")
    assert (granted, slots.waiting("d")) == ([1, 2], 0)
    for slot in (*firsts, *others, firsts[0]):
        slot.give_back()
    assert slots.held("d") == 0
    assert slots.take("d", lambda: None).held


def test_a_place_that_is_granted_while_it_is_taken_is_held_and_nobody_is_called_back() -> None:
    """Others waited, and the estimate has become shorter since: the look for them reaches the one that comes."""
    granted: list[str] = []
    times = [LinkTimes(prefill_s=0.02, pull_s=0.02)]
    slots = LinkSlots(lambda _: times[0], now_s=lambda: 0.0, later=lambda *_: None)
    firsts = [slots.take("d", lambda: granted.append("first")) for _ in range(4)]
    waiting = sum(not each.held for each in firsts)
    assert waiting
    times[0] = LinkTimes(prefill_s=0.02, pull_s=0.001)
    newest = slots.take("d", lambda: granted.append("newest"))
    assert newest.held
    assert granted == ["first"] * waiting
    newest.give_back()
    assert slots.held("d") == 4


@given(
    st.integers(4, 6),
    st.lists(st.tuples(st.sampled_from(["take", "give"]), st.sampled_from("de"), st.integers(0, 9)), max_size=60),
)
def test_places_are_never_more_than_there_are_and_come_in_order(most: int, steps: list[tuple[str, str, int]]) -> None:
    slots = slots_with(most)
    order: dict[str, list[Slot]] = {"d": [], "e": []}
    live: dict[str, list[Slot]] = {"d": [], "e": []}
    for what, decode, number in steps:
        if what == "take":
            slot = slots.take(decode, lambda: None)
            live[decode].append(slot)
            order[decode].append(slot)
        elif live[decode]:
            slot = live[decode].pop(number % len(live[decode]))
            slot.give_back()
            order[decode].remove(slot)
        for name, taken in order.items():
            held = [each.held for each in taken]
            assert held == sorted(held, reverse=True), "first come, first served"
            assert sum(held) == slots.held(name) == min(most, len(held))
            assert slots.waiting(name) == len(held) - sum(held)
