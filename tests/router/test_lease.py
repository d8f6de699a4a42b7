"""When a decode leg is dropped, on a clock that the test turns; and what counters say of KV that came."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from hpcserve.engines import EngineCounters
from hpcserve.nouns import Endpoint, Role
from hpcserve.router.arrivals import Arrivals
from hpcserve.router.ask import AskError
from hpcserve.router.lease import LeaseWatch
from tests.router.fake_engine import FakeEngine

WORKER = FakeEngine(Role.DECODE).endpoint


class Case:
    """A leg with a limit of 10 s."""

    def __init__(self, *, stream: bool, limit_s: float | None = 10.0) -> None:
        self.now_s = 100.0
        self.asked: list[Callable[[], None]] = []
        self.given_up = 0
        self.dropped = 0
        desk: Any = SimpleNamespace(
            limits=SimpleNamespace(handoff_s=limit_s),
            now_s=lambda: self.now_s,
            arrivals=SimpleNamespace(watch=self._watch),
        )
        self.watch = LeaseWatch(desk, decode=WORKER, stream=stream, late=self._late)

    def _watch(self, worker: Endpoint, arrived: Callable[[], None]) -> Callable[[], None]:
        assert worker == WORKER
        self.asked.append(arrived)
        return self._give_up

    def _give_up(self) -> None:
        self.given_up += 1

    def _late(self) -> None:
        self.dropped += 1
        self.watch.stop()

    def at(self, after_s: float) -> tuple[bool, bool]:
        """Whether it has been dropped, and whether an answer would be believed."""
        self.now_s = 100.0 + after_s
        believed = self.watch.in_time()
        self.watch.check(self.now_s)
        return bool(self.dropped), believed


def test_a_stream_has_the_limit() -> None:
    case = Case(stream=True)
    assert case.at(9.9) == (False, True)
    assert case.at(10.1) == (True, False)
    assert case.at(99.0)[0]
    assert (case.dropped, case.asked) == (1, [])


def test_an_answer_that_is_not_streamed_has_half_as_long_again_and_is_looked_for_from_half_of_it_on() -> None:
    case = Case(stream=False)
    assert case.at(4.9) == (False, True)
    assert not case.asked, "a worker that has not even taken it in does not count it among those that wait"
    assert case.at(5.0) == (False, True)
    assert case.at(14.9) == (False, True)
    assert len(case.asked) == 1
    assert case.at(15.1) == (True, False)
    assert case.given_up == 1


def test_one_whose_kv_is_there_may_take_its_time() -> None:
    case = Case(stream=False)
    case.at(6.0)
    case.asked[0]()
    assert case.at(9999.0) == (False, True)


def test_without_a_limit_nothing_is_dropped() -> None:
    case = Case(stream=True, limit_s=None)
    assert case.at(9999.0) == (False, True)


class Readings:
    """Counters from a list: (waiting, tokens made so far), or None where the worker does not answer."""

    def __init__(self, *each: tuple[int, int] | None) -> None:
        self.left = list(each)
        self.empty = asyncio.Event()

    async def of(self, worker: Endpoint) -> EngineCounters:
        assert worker == WORKER
        await asyncio.sleep(0)
        reading = self.left.pop(0) if self.left else None
        if not self.left:
            self.empty.set()
        if reading is None:
            raise AskError("no answer")
        numbers = dict.fromkeys(EngineCounters.model_fields, 0) | {
            "waiting": reading[0],
            "generation_tokens": reading[1],
        }
        return EngineCounters.model_validate({**numbers, "xfer_seconds": 0.0, "running": 1})


@pytest.mark.parametrize(
    ("readings", "arrived"),
    [
        (((0, 1), (0, 2)), True),
        (((3, 1), (0, 2)), True),
        (((0, 1), (3, 2)), False),
        (((0, 1), (0, 1)), False),
        (((0, 1), None, (0, 2)), False),
        (((2, 1), (1, 2), (0, 3)), True),
        ((None, None), False),
    ],
)
def test_kv_has_come_when_nobody_waits_behind_a_step(
    readings: tuple[tuple[int, int] | None, ...], arrived: bool
) -> None:
    async def run() -> None:
        told: list[str] = []
        counters: Any = Readings(*readings)
        arrivals = Arrivals(counters, apart_s=0.0)
        give_up = arrivals.watch(WORKER, lambda: told.append("first"))
        await counters.empty.wait()
        await asyncio.sleep(0.01)
        assert told == (["first"] if arrived else [])
        give_up()
        await arrivals.close()

    asyncio.run(run())


def test_who_asks_between_two_readings_waits_for_two_of_its_own() -> None:
    async def run() -> None:
        told: list[str] = []
        gate = asyncio.Event()

        class Told(Readings):
            async def of(self, worker: Endpoint) -> EngineCounters:
                found = await super().of(worker)
                gate.set()
                return found

        counters: Any = Told((0, 1), (0, 2))
        arrivals = Arrivals(counters, apart_s=0.05)
        arrivals.watch(WORKER, lambda: told.append("first"))
        await gate.wait()
        give_up = arrivals.watch(WORKER, lambda: told.append("second"))
        await counters.empty.wait()
        await asyncio.sleep(0.02)
        assert told == ["first"]
        give_up()
        await arrivals.close()

    asyncio.run(run())
