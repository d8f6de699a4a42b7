"""The router's proofs before engines, simulated and real: right handoffs pass, also under load; spoiled ones do not."""

import asyncio
import json
from collections.abc import Callable
from itertools import count
from typing import Any

import httpx
import pytest

from hpcserve.engines import read_counters
from hpcserve.engines.handoff import Body, decode_body
from hpcserve.nouns import Endpoint, Role
from hpcserve.router import prove as proofs
from hpcserve.router.counters import CounterReader
from hpcserve.router.ledger import Finding
from hpcserve.router.pool import Pools
from hpcserve.router.prove import Prover
from hpcserve.router.roster import Candidate
from tests import synthetic
from tests.contract.pair import BLOCK_SIZE, COMPLETIONS, KEY, MODEL_LEN, REMOTE_DECODE, Engine, Pair

LIMIT_S = 20.0
"""Not the lease's half: the machine may be busy, and what is pulled late here is still there."""


def endpoint(engine: Engine, role: Role) -> Endpoint:
    return Endpoint(
        id=f"{role.value}-0",
        generation="1",
        role=role,
        url=engine.url,
        node="local1",
        pid=engine.process.pid,
        model="smollm2",
        engine="vllm",
        engine_version="0.32.0",
        handoff=synthetic.handoff(block_size=BLOCK_SIZE),
        max_model_len=MODEL_LEN,
    )


async def prove(pair: Pair, *, rounds: int = 8) -> Finding:
    pools = Pools(loop=asyncio.get_running_loop())
    prover = Prover(pools, CounterReader(pools, read_counters), key=KEY, handoff_s=LIMIT_S)
    candidate = Candidate(
        prefill=endpoint(pair.prefill, Role.PREFILL), decode=endpoint(pair.decode, Role.DECODE), rounds=rounds
    )
    try:
        while True:
            finding = await prover.prove(candidate)
            if finding.outcome != "unsure":  # roundings may be too many for one proof; the router, too, begins anew
                return finding
    finally:
        pools.close()


def test_a_pair_is_proved(pair: Pair) -> None:
    finding = asyncio.run(prove(pair))
    assert finding.outcome == "proved", finding.reason


def test_a_pair_is_proved_while_it_serves(pair: Pair) -> None:
    """In other batches sums come in another order: that must not look like foreign KV."""

    async def load(client: httpx.AsyncClient, engine: Engine, number: int) -> None:
        for turn in count():
            body = {"model": "smollm2", "prompt": f"Tell me of river {number}, {turn}.", "max_tokens": 12}
            await client.post(engine.url + COMPLETIONS, json=body, timeout=120)

    async def run() -> Finding:
        async with httpx.AsyncClient(headers={"Authorization": f"Bearer {KEY}"}, trust_env=False) as client:
            tasks = [
                asyncio.create_task(load(client, engine, number))
                for number, engine in enumerate((pair.prefill, pair.decode, pair.decode))
            ]
            try:
                return await prove(pair)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    finding = asyncio.run(run())
    assert finding.outcome == "proved", finding.reason


@pytest.mark.parametrize("every", [1, 2])
def test_other_kv_is_never_proved(pair: Pair, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """KV of another prompt of the same length, in every handoff or in every second one."""
    foreign = " ".join(str(number) for number in range(100, 200))
    kept = pair.prefill.post(
        COMPLETIONS, {"model": "smollm2", "prompt": foreign, "max_tokens": 1, "kv_transfer_params": REMOTE_DECODE}
    ).json()["kv_transfer_params"]["remote_block_ids"][0]
    monkeypatch.setattr(proofs, "decode_body", _spoiling(kept, every))
    finding = asyncio.run(prove(pair))
    assert finding.outcome == "wrong", finding.reason
    assert "with the KV that was handed over" in finding.reason


def _spoiling(kept: list[int], every: int) -> Callable[[Body, bytes], bytes]:
    calls = count()

    def spoiled(body: Body, transfer: bytes) -> bytes:
        params: dict[str, Any] = json.loads(transfer)
        if next(calls) % every == 0:
            wanted = len(params["remote_block_ids"][0])
            assert len(kept) >= wanted
            params["remote_block_ids"] = [kept[:wanted]]
        return decode_body(body, json.dumps(params).encode())

    return spoiled
