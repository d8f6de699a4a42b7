import asyncio

import pytest

from hpcserve.nouns import Role
from hpcserve.router.main import handoff_limit_s
from hpcserve.router.proof_text import Completion, difference, proof_prompt
from hpcserve.router.roster import Roster
from tests import synthetic
from tests.router.fakes import FakeEngine, Rig, plan_of

BODY = {"model": "tiny", "prompt": "a b c", "max_tokens": 2}


def test_a_right_handoff_is_proved_with_salts_of_its_own() -> None:
    async def run() -> None:
        async with Rig(proved=False) as rig:
            candidate, proved, reason = await rig.prove_next()
            assert proved
            assert candidate.title == "prefill-0>decode-0"
            assert "4096 bytes of KV in 1 transfers, 8 tokens equal" in reason
            prefill, decode = rig.engines
            assert (prefill.legs(), decode.legs()) == (["prefill"], ["decode", "whole"])
            bodies = [call.body for call in (*prefill.calls, *decode.calls)]
            assert len({body["cache_salt"] for body in bodies}) == 3
            assert len({body["prompt"] for body in bodies}) == 1
            assert rig.desk.roster.ready
            assert rig.state().waiting_for == ()
            assert list(rig.desk.roster.candidates(1e9)) == []

    asyncio.run(run())


def test_a_corrupted_handoff_fails_and_serves_nobody() -> None:
    async def run() -> None:
        async with Rig(proved=False) as rig:
            decode = rig.engines[1]
            decode.corrupt = True
            _, proved, reason = await rig.prove_next()
            assert not proved
            assert "token 1 is" in reason
            assert not rig.desk.roster.ready
            assert (await rig.ask("/health")).status == 503
            assert any("wrong answer" in sentence for sentence in rig.state().waiting_for)
            await rig.ask("/v1/completions", BODY)
            assert decode.legs()[-1] == "whole"
            # not at once, but later it is tried again
            assert list(rig.desk.roster.candidates(rig.desk.now_s())) == []
            assert len(list(rig.desk.roster.candidates(rig.desk.now_s() + 11))) == 1

    asyncio.run(run())


def test_an_answer_without_a_transfer_proves_nothing() -> None:
    async def run() -> None:
        async with Rig(proved=False) as rig:
            rig.engines[1].counts_transfers = False
            _, proved, reason = await rig.prove_next()
            assert not proved
            assert "no KV transfer" in reason

    asyncio.run(run())


def test_failures_of_the_engines_end_in_words() -> None:
    async def run() -> None:
        async with Rig(proved=False) as rig:
            await rig.engines[0].stop()
            _, proved, reason = await rig.prove_next()
            assert not proved
            assert reason.startswith("the prefill leg on prefill-0: no connection")

    asyncio.run(run())


def test_an_aggregated_service_is_ready_when_each_worker_has_answered() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED, 0), FakeEngine(Role.AGGREGATED, 1), proved=False) as rig:
            await rig.prove_next()
            assert not rig.desk.roster.ready
            await rig.prove_next()
            assert rig.desk.roster.ready
            assert [engine.legs() for engine in rig.engines] == [["whole"], ["whole"]]

    asyncio.run(run())


def test_workers_without_a_proof_come_first_and_proofs_outlive_the_router() -> None:
    async def run() -> None:
        engines = [
            FakeEngine(Role.PREFILL, 0),
            FakeEngine(Role.PREFILL, 1),
            FakeEngine(Role.DECODE, 0),
            FakeEngine(Role.DECODE, 1),
        ]
        async with Rig(*engines, proved=False) as rig:
            for _ in range(2):
                await rig.prove_next()
            assert rig.desk.roster.ready
            assert rig.state().waiting_for == ()
            assert len(list(rig.desk.roster.candidates(0.0))) == 2
            proofs = rig.state().proofs
            again = Roster(plan_of(engines), model="tiny")
            again.take(tuple(engine.endpoint for engine in engines))
            assert not again.ready
            again.take_over(proofs)
            assert again.ready
            engines[0].generation = "g2"
            again = Roster(plan_of(engines), model="tiny")
            again.take(tuple(engine.endpoint for engine in engines))
            again.take_over(proofs)
            assert len(again.proofs()) == 1
            assert not again.ready

    asyncio.run(run())


def said(*tokens: str, scores: dict[str, float] | None = None) -> Completion:
    return Completion(text="".join(tokens), tokens=tokens, alternatives=(scores or {},) * len(tokens))


def test_answers_may_part_only_where_the_local_run_had_a_tie() -> None:
    tie = {"b": -1.5, "c": -1.5}
    near = {"b": -1.5, "c": -1.53}
    assert difference(said("a", "b"), said("a", "b"), same_split=True) == ""
    assert "token 2" in difference(said("a", "b"), said("a", "c"), same_split=True)
    assert difference(said("a", "b", "x"), said("a", "c", "y", scores=tie), same_split=True) == ""
    assert "token 2" in difference(said("a", "b"), said("a", "c", scores=near), same_split=True)
    assert difference(said("a", "b"), said("a", "c", scores=near), same_split=False) == ""
    assert "token 2" in difference(said("a", "b"), said("a", "c", scores={"c": -1.0}), same_split=False)
    assert difference(said("a"), said("a", "b"), same_split=True)


@pytest.mark.parametrize("block_size", [16, 32, 128])
@pytest.mark.parametrize("max_tokens", [None, 64, 512, 100_000])
def test_proof_prompts_fit(block_size: int, max_tokens: int | None) -> None:
    prompts = {proof_prompt(nonce, block_size=block_size, max_tokens=max_tokens) for nonce in range(20)}
    assert len(prompts) == 20
    for prompt in prompts:
        assert max_tokens is None or len(prompt) + 8 <= max_tokens
        words = prompt.split(" ")
        half = len(words) - len(words) // 3
        assert words[half:] == words[: len(words) - half]
        if max_tokens is None:
            assert len(words) >= block_size


def test_the_limit_of_a_handoff() -> None:
    service = synthetic.service(kv_lease_s=30)

    def limit(**changes: float | bool) -> float | None:
        return handoff_limit_s(service.model_copy(update={"router": service.router.model_copy(update=changes)}))

    assert limit() == 15
    assert limit(handoff_timeout_s=4.0) == 4
    assert limit(handoff_timeout_s=20.0) == 15
    assert limit(lease_rule=False) is None
    assert limit(lease_rule=False, handoff_timeout_s=20.0) == 20
