"""Requests go where their KV is, through the router as it serves."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hpcserve.nouns import Role
from hpcserve.router.kv_knowledge import KvKnowledge
from hpcserve.router.kv_series import knowledge_series
from hpcserve.router.tokens import PromptTokens
from hpcserve.routing import Preferences
from hpcserve.routing.block_hashes import block_keys, packed_tokens
from hpcserve.routing.kv_index import KvIndex
from tests.router.fake_engine import FakeEngine
from tests.router.rig import Rig
from tests.tiny_model import byte_level

BLOCK = 16
LONG = "The sea is wide and the wind blows over it. " * 100


def run(body: Callable[[Rig], Coroutine[Any, Any, None]], *, role: Role = Role.PREFILL) -> None:
    async def whole() -> None:
        engines = [FakeEngine(role, number) for number in range(3)]
        if role == Role.PREFILL:
            engines.append(FakeEngine(Role.DECODE))
        async with Rig(*engines) as rig:
            rig.desk.kv = knowledge = KvKnowledge(now_s=rig.desk.now_s)
            rig.desk.further_series.append(lambda: knowledge_series(knowledge, doubts=0))
            await body(rig)
            knowledge.close()

    asyncio.run(whole())


async def served_by(rig: Rig, prompt: Any, **more: Any) -> str:
    answer = await rig.ask("/v1/completions", {"model": "tiny", "prompt": prompt, "max_tokens": 2, **more})
    assert answer.status == 200
    return answer.headers["x-hpcserve-route"].partition(">")[0]


@pytest.mark.parametrize("role", [Role.PREFILL, Role.AGGREGATED])
def test_a_prompt_that_goes_on_goes_where_it_began(role: Role) -> None:
    async def body(rig: Rig) -> None:
        for number in range(3):
            begun = f"{number}: {LONG}"
            first = await served_by(rig, begun)
            for turn in range(4):
                assert await served_by(rig, begun + "And on. " * turn) == first

    run(body, role=role)


def test_another_tenant_is_not_drawn_to_where_the_first_ones_kv_is() -> None:
    async def body(rig: Rig) -> None:
        first = await served_by(rig, LONG, cache_salt="tenant-a")
        assert {await served_by(rig, LONG, cache_salt="tenant-a") for _ in range(4)} == {first}
        others = {await served_by(rig, LONG, cache_salt=f"tenant-{number}") for number in range(6)}
        assert len(others) > 1

    run(body)


def test_what_a_worker_told_goes_before_where_requests_went() -> None:
    async def body(rig: Rig) -> None:
        index = KvIndex()
        index.block_size = BLOCK
        assert rig.desk.kv is not None
        rig.desk.kv.index, rig.desk.kv.tokens = index, PromptTokens(byte_level(), None)
        ids = list(range(1000))
        keys = block_keys(packed_tokens(ids), BLOCK)
        for holder in ("prefill-2", "prefill-0", "prefill-1"):
            index.store(holder, keys, keys)
            for _ in range(3):
                assert await served_by(rig, ids) == holder
            index.clear(holder)  # as when it starts anew
            rig.desk.kv.memory.forget(holder)
        assert rig.desk.kv.predicted_prompts == dict.fromkeys(("prefill-0", "prefill-1", "prefill-2"), 3)
        assert rig.desk.decisions[-1].held == 62 * BLOCK

    run(body)


def test_what_is_cached_is_not_asked_for() -> None:
    """Whether to borrow is weighed by the tokens that come to be computed, where they are computed; not by refusals."""

    async def body(rig: Rig) -> None:
        typical = rig.desk.roster.typical
        await served_by(rig, LONG)
        assert typical.asked_ms is None, "nobody asked for it"
        rig.desk.preferences = Preferences(borrow_when_cheaper=True)
        for prompt, held in ((f"Anew. {LONG}", 0), (LONG, 512)):
            typical.asked_ms = None
            await served_by(rig, prompt)
            decision = rig.desk.decisions[-1]
            assert decision.held >= held
            assert typical.asked_tokens == pytest.approx(decision.prompt_tokens - decision.held)
        asked_ms = typical.asked_ms
        refused = await rig.ask("/v1/completions", {"model": "other", "prompt": LONG})
        assert (refused.status, typical.asked_ms) == (404, asked_ms)

    run(body)


def test_the_metrics_show_what_is_known() -> None:
    async def body(rig: Rig) -> None:
        await served_by(rig, LONG)
        text = (await rig.ask("/metrics")).body.decode()
        found = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
        assert {"hpcserve_router_kv_exact", "hpcserve_router_kv_remembered_prefixes"} <= found
        assert "hpcserve_router_kv_prompts_total" in found

    run(body)


@pytest.mark.parametrize("prompt", [[], ["a", 7], [5, -1], {"a": 1}, None, 5, [[1], [2]], "\ud800"])
def test_no_prompt_stands_in_the_way(prompt: Any) -> None:
    """Whatever it is, it is an engine's to refuse."""

    async def body(rig: Rig) -> None:
        assert rig.desk.kv is not None
        rig.desk.kv.index, rig.desk.kv.tokens = KvIndex(), PromptTokens(byte_level(), None)
        answer = await rig.ask("/v1/completions", {"model": "tiny", "prompt": prompt, "max_tokens": 2})
        assert answer.status in {200, 400}

    run(body)
