import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from hpcserve.simengine.link import SharedLink

T = TypeVar("T")


class _Jump(selectors.SelectSelector):
    """Waits for nothing: moves the loop's clock on instead."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now_s += timeout or 0
        return []


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only while everyone waits."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.now_s


def run(work: Callable[[SharedLink], Awaitable[T]]) -> T:
    """Run on a link of 1 MB/s in its own time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:

        async def main() -> T:
            return await work(SharedLink(0.001, clock=asyncio.get_running_loop().time))

        return runner.run(main())


async def timed(link: SharedLink, size_bytes: int) -> float:
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    await link.carry(size_bytes)
    return loop.time() - start_s


def test_alone_it_takes_bytes_over_rate() -> None:
    assert run(lambda link: timed(link, 100_000)) == pytest.approx(0.1)


def test_one_after_another_does_not_slow_down() -> None:
    async def work(link: SharedLink) -> list[float]:
        times = []
        for _ in range(3):
            times.append(await timed(link, 50_000))
            await asyncio.sleep(0.3)
        return times

    assert run(work) == pytest.approx([0.05, 0.05, 0.05])


def test_two_share_evenly_and_total_is_kept() -> None:
    async def work(link: SharedLink) -> list[float]:
        return list(await asyncio.gather(timed(link, 50_000), timed(link, 100_000)))

    assert run(work) == pytest.approx([0.1, 0.15])


def test_late_comer_shares_only_what_is_left() -> None:
    async def work(link: SharedLink) -> list[float]:
        first = asyncio.ensure_future(timed(link, 100_000))
        await asyncio.sleep(0.05)
        return [await timed(link, 100_000), await first]

    assert run(work) == pytest.approx([0.15, 0.15])


def test_one_that_gives_up_leaves_its_share_to_the_others() -> None:
    async def work(link: SharedLink) -> float:
        gone = asyncio.ensure_future(link.carry(1_000_000))
        stays = asyncio.ensure_future(timed(link, 100_000))
        await asyncio.sleep(0.1)
        gone.cancel()
        return await stays

    assert run(work) == pytest.approx(0.15)
