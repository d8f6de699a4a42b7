"""A client leaves: both engines drop its request, and no KV stays pinned for it until the lease ends."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from uuid import uuid4

import httpx
import pytest

from hpcserve.engines import adapter_for
from hpcserve.nouns import Role
from tests.real.harness import Served, kill_group, wait_for

pytestmark = pytest.mark.timeout(300)

LONG = " The harbour was full of ships from the north, and the captain counted every one of them." * 60
"""What each prompt goes on with; about 1,200 tokens: a second or more of prefill on this engine, 38 blocks of 32."""
TOKENS = 400
FEW_BLOCKS = 4
"""What the probe itself holds, and the null block."""
SOON_S = 10
"""Far less than the lease of the example's service."""


def held_blocks(served: Served, role: Role) -> int:
    """KV blocks that some request holds, the probe's own included: an idle engine does not renew its gauges."""
    served.complete_on(role, "A probe", max_tokens=1)
    text = httpx.get(f"{served.endpoints()[role].url}/metrics", timeout=10).text
    [usage] = [float(line.split()[-1]) for line in text.splitlines() if line.startswith("vllm:kv_cache_usage_perc{")]
    counters = adapter_for("vllm").read_counters(text)
    assert counters.kv_room_tokens
    assert counters.block_size
    return round(usage * counters.kv_room_tokens / counters.block_size)


def has_nothing(served: Served, role: Role) -> bool:
    found = served.counters(role)
    return found.running == found.waiting == 0 and held_blocks(served, role) <= FEW_BLOCKS


def assert_nothing_stays(served: Served) -> None:
    """Within seconds both engines run nothing and hold nothing; no lease had to end for it."""
    expired = served.counters(Role.PREFILL).kv_expired
    for role in (Role.PREFILL, Role.DECODE):
        wait_for(f"{role} runs and holds nothing", partial(has_nothing, served, role), within_s=SOON_S)
    assert served.counters(Role.PREFILL).kv_expired == expired


def legs_at(served: Served, worker: str) -> float:
    """Legs that the router has under way at a worker."""
    text = httpx.get(f"{served.url}/metrics", headers={"Authorization": f"Bearer {served.key}"}, timeout=10).text
    prefix = f'hpcserve_router_worker_in_flight{{worker="{worker}"}}'
    [value] = [line.split()[-1] for line in text.splitlines() if line.startswith(prefix)]
    return float(value)


def leave_when(served: Served, leaves: Callable[[httpx.AsyncClient, dict[str, object]], Awaitable[None]]) -> None:
    """Ask for a long answer to a prompt that nobody has seen, and close the connection when `leaves` returns."""

    async def ask() -> None:
        headers = {"Authorization": f"Bearer {served.key}"}
        async with httpx.AsyncClient(base_url=served.url, headers=headers, timeout=60) as client:
            prompt = f"{uuid4()}{LONG}"
            body = {"model": served.model, "prompt": prompt, "temperature": 0, "max_tokens": TOKENS, "ignore_eos": True}
            await leaves(client, body)

    asyncio.run(ask())


async def until(what: str, holds: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_for, what, holds, within_s=30, every_s=0.02)


def test_a_client_that_leaves_during_the_prefill(served: Served) -> None:
    """The decode worker never hears of the request."""
    before = served.counters(Role.DECODE)

    async def leaves(client: httpx.AsyncClient, body: dict[str, object]) -> None:
        asked = asyncio.create_task(client.post("/v1/completions", json=body))
        await until("the prefill leg", lambda: legs_at(served, "prefill-0") > 0)
        await asyncio.sleep(0.5)
        asked.cancel()

    leave_when(served, leaves)
    after = served.counters(Role.DECODE)
    assert (after.prompt_tokens, after.xfer_count) == (before.prompt_tokens, before.xfer_count)
    assert_nothing_stays(served)


def test_a_client_that_leaves_before_the_pull(served: Served) -> None:
    """The prefill worker has the KV pinned, and the decode worker has not read the request yet."""
    decode = served.endpoints()[Role.DECODE]
    before = served.counters(Role.PREFILL)
    transfers = served.counters(Role.DECODE).xfer_count
    kill_group(decode.pid, signal.SIGSTOP)
    try:

        async def leaves(client: httpx.AsyncClient, body: dict[str, object]) -> None:
            asked = asyncio.create_task(client.post("/v1/completions", json=body))
            await until(
                "the prefill",
                lambda: (
                    (found := served.counters(Role.PREFILL)).prompt_tokens > before.prompt_tokens + 1000
                    and found.running == 0
                ),
            )
            assert held_blocks(served, Role.PREFILL) > FEW_BLOCKS
            asked.cancel()

        leave_when(served, leaves)
    finally:
        kill_group(decode.pid, signal.SIGCONT)
    assert_nothing_stays(served)
    assert served.counters(Role.DECODE).xfer_count == transfers


def test_a_client_that_leaves_during_the_stream(served: Served) -> None:
    before = served.counters(Role.DECODE).generation_tokens

    async def leaves(client: httpx.AsyncClient, body: dict[str, object]) -> None:
        async with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as answer:
            seen = 0
            async for line in answer.aiter_lines():
                seen += line.startswith("data: ")
                if seen > 3:
                    return

    leave_when(served, leaves)
    assert_nothing_stays(served)
    assert served.counters(Role.DECODE).generation_tokens - before < TOKENS / 2
