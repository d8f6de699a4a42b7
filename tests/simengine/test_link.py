import asyncio
import time

import pytest
import uvloop

from hpcserve.simengine.link import SharedLink

SLACK_S = 0.03


async def timed(link: SharedLink, size_bytes: int) -> float:
    start_s = time.monotonic()
    await link.carry(size_bytes)
    return time.monotonic() - start_s


def test_alone_it_takes_bytes_over_rate() -> None:
    async def run() -> float:
        return await timed(SharedLink(0.001), 100_000)

    assert uvloop.run(run()) == pytest.approx(0.1, abs=SLACK_S)


def test_two_share_evenly_and_total_is_kept() -> None:
    async def run() -> tuple[float, float]:
        link = SharedLink(0.001)
        return await asyncio.gather(timed(link, 50_000), timed(link, 100_000))

    first, second = uvloop.run(run())
    assert first == pytest.approx(0.1, abs=SLACK_S)
    assert second == pytest.approx(0.15, abs=SLACK_S)


def test_one_that_gives_up_leaves_its_share_to_the_others() -> None:
    async def run() -> float:
        link = SharedLink(0.001)
        gone = asyncio.ensure_future(link.carry(1_000_000))
        stays = asyncio.ensure_future(timed(link, 100_000))
        await asyncio.sleep(0.1)
        gone.cancel()
        return await stays

    assert uvloop.run(run()) == pytest.approx(0.15, abs=SLACK_S)
