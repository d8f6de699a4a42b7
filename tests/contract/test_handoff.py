"""Prefill here, decode there: what is handed over, what is counted, and what goes wrong in which form."""

import time
from itertools import count
from typing import Any

import pytest

from hpcserve.router.proof_text import Likeness, compare, read_completion
from tests.contract.pair import BLOCK_SIZE, CHAT, COMPLETIONS, KV_BYTES_PER_TOKEN, LEASE_S, REMOTE_DECODE, Pair
from tests.contract.shapes import HANDOFF, error, events

INTERNAL = {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}
_starts = count(3000, 137)


def fresh_ids(length: int) -> list[int]:
    """A prompt that no test has used."""
    start = next(_starts)
    return [start + number * 7 % 4001 for number in range(length)]


def completion(length: int, **body: Any) -> dict[str, Any]:
    return {"model": "smollm2", "prompt": fresh_ids(length), **body}


def conversation() -> dict[str, Any]:
    words = " ".join(f"word{next(_starts)}" for _ in range(40))
    return {"model": "smollm2", "messages": [{"role": "user", "content": f"Repeat: {words}"}]}


def test_handed_over_parameters(pair: Pair) -> None:
    body = completion(70)
    params, response = pair.hand_off(COMPLETIONS, body, max_tokens=4)
    assert list(params) == list(HANDOFF)
    for name, expected in HANDOFF.items():
        if isinstance(expected, type):
            assert type(params[name]) is expected, name
        else:
            assert params[name] == expected, name
    (blocks,) = params["remote_block_ids"]
    assert len(blocks) == 3
    assert all(type(number) is int and number > 0 for number in blocks)
    assert (params["remote_num_tokens"], params["remote_prefill_cached_tokens"]) == (70, 0)
    assert response.json()["kv_transfer_params"] is None


def test_request_id_goes_into_the_remote_one(pair: Pair) -> None:
    body = {**completion(40), "max_tokens": 1, "kv_transfer_params": REMOTE_DECODE}
    params = pair.prefill.post(COMPLETIONS, body, **{"X-Request-Id": "abc"}).json()["kv_transfer_params"]
    assert params["remote_request_id"].startswith("cmpl-abc-0-")
    body = {**conversation(), "max_tokens": 1, "kv_transfer_params": REMOTE_DECODE}
    params = pair.prefill.post(CHAT, body, **{"X-Request-Id": "abc"}).json()["kv_transfer_params"]
    assert params["remote_request_id"].startswith("chatcmpl-abc-")


@pytest.mark.parametrize("length", [5, 31, 32, 33, 200])
def test_answer_equals_the_local_one_and_transfer_is_counted(pair: Pair, length: int) -> None:
    body = completion(length, logprobs=5)
    before = pair.decode.counters()
    _, response = pair.hand_off(COMPLETIONS, body, max_tokens=8, ignore_eos=True)
    after = pair.decode.counters()
    # Own salt: neither engine may answer the reference from what the handoff left in its cache.
    local = pair.decode.post(
        COMPLETIONS, {**body, "temperature": 0, "max_tokens": 8, "ignore_eos": True, "cache_salt": f"s{length}"}
    )
    # Made-up prompts leave a real model unsure: a rounding may swap two tokens that are about equally likely.
    likeness, how = compare(read_completion(response.content), read_completion(local.content))
    assert likeness is Likeness.SAME or (pair.kind == "vllm" and likeness is Likeness.UNSURE), how
    assert response.json()["usage"] == local.json()["usage"]
    blocks = -(-length // BLOCK_SIZE)
    assert after.xfer_count - before.xfer_count == 1
    assert after.xfer_bytes - before.xfer_bytes == blocks * BLOCK_SIZE * KV_BYTES_PER_TOKEN
    assert after.xfer_seconds > before.xfer_seconds
    assert after.external_hit_tokens - before.external_hit_tokens == length
    assert after.prompt_tokens - before.prompt_tokens == length
    assert (after.xfer_failed, after.running, after.waiting) == (before.xfer_failed, 0, 0)


def test_only_what_the_decode_side_lacks_is_moved(pair: Pair) -> None:
    body = completion(3 * BLOCK_SIZE)
    pair.hand_off(COMPLETIONS, body, max_tokens=1)
    before = pair.decode.counters()
    pair.hand_off(COMPLETIONS, body, max_tokens=1)
    after = pair.decode.counters()
    assert after.xfer_bytes - before.xfer_bytes == BLOCK_SIZE * KV_BYTES_PER_TOKEN
    assert after.external_hit_tokens - before.external_hit_tokens == BLOCK_SIZE


def test_chat_and_streams(pair: Pair) -> None:
    body = conversation()
    _, whole = pair.hand_off(CHAT, body, max_tokens=6)
    _, streamed = pair.hand_off(CHAT, body, max_tokens=6, stream=True)
    chunks = events(streamed)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert text == whole.json()["choices"][0]["message"]["content"]


def test_streamed_prefill_hands_nothing_over(pair: Pair) -> None:
    body = {**completion(40), "max_tokens": 1, "stream": True, "kv_transfer_params": REMOTE_DECODE}
    assert all("kv_transfer_params" not in chunk for chunk in events(pair.prefill.post(COMPLETIONS, body)))


def test_other_blocks_give_other_tokens(pair: Pair) -> None:
    """A handoff that names another request's blocks succeeds, and its tokens are wrong."""
    victim = completion(64)
    local = pair.prefill.post(COMPLETIONS, {**victim, "temperature": 0, "max_tokens": 8, "ignore_eos": True})
    other, _ = pair.hand_off(COMPLETIONS, completion(64), max_tokens=1)
    wrong = {"remote_block_ids": other["remote_block_ids"]}
    _, response = pair.hand_off(COMPLETIONS, victim, max_tokens=8, ignore_eos=True, change=wrong)
    assert response.status_code == 200
    assert response.json()["choices"][0]["text"] != local.json()["choices"][0]["text"]


_FAILURES = [{"remote_engine_id": "somebody-else"}, {"remote_block_ids": [[10**6, 10**6]]}]


@pytest.mark.parametrize("change", _FAILURES, ids=["engine", "blocks"])
def test_failed_load(pair: Pair, change: dict[str, Any]) -> None:
    before = pair.decode.counters()
    _, response = pair.hand_off(COMPLETIONS, completion(40), max_tokens=4, change=change)
    assert error(response) == (500, "InternalServerError", None, 500)
    assert response.json()["error"] == INTERNAL
    _, response = pair.hand_off(CHAT, _short_conversation(), max_tokens=4, change=change)
    assert response.status_code == 500
    _await_failed(pair, before.xfer_failed)
    assert pair.decode.client.get("/health").status_code == 200


@pytest.mark.parametrize("change", _FAILURES, ids=["engine", "blocks"])
def test_failed_load_in_a_stream_is_an_event(pair: Pair, change: dict[str, Any]) -> None:
    _, response = pair.hand_off(COMPLETIONS, completion(40), max_tokens=4, stream=True, change=change)
    assert events(response) == [{"error": INTERNAL}]
    assert response.text.startswith('data: {"error": {"message": "Internal server error", ')
    _, response = pair.hand_off(CHAT, _short_conversation(), max_tokens=4, stream=True, change=change)
    first, second = events(response)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert second == {"error": INTERNAL}


def test_wrong_rank_count_fails(pair: Pair) -> None:
    _, response = pair.hand_off(COMPLETIONS, completion(40), max_tokens=4, change={"tp_size": 2})
    assert pair.decode.client.get("/health").status_code == 200
    assert response.status_code in {200, 500}  # 200 where the engine has been met: its ranks are known by then


def test_expired_lease_is_counted_by_the_prefill_side(pair: Pair) -> None:
    before = pair.prefill.counters()
    body = {**completion(64), "temperature": 0}
    first = pair.prefill.post(COMPLETIONS, {**body, "max_tokens": 1, "kv_transfer_params": REMOTE_DECODE})
    time.sleep(LEASE_S + 1.5)
    params = first.json()["kv_transfer_params"]
    response = pair.decode.post(COMPLETIONS, {**body, "max_tokens": 2, "kv_transfer_params": params})
    assert response.status_code == 200  # nobody has used the blocks since
    after = before
    end = time.monotonic() + 10
    while time.monotonic() < end:
        after = pair.prefill.counters()
        if after.late_notices > before.late_notices and after.kv_expired > before.kv_expired:
            return
        pair.prefill.post(COMPLETIONS, completion(5, max_tokens=1))  # vLLM counts at its next step
    pytest.fail(
        f"expired {before.kv_expired} -> {after.kv_expired}, late {before.late_notices} -> {after.late_notices}"
    )


def test_late_pull_of_reused_blocks_gives_other_tokens(pair: Pair) -> None:
    """What the lease rule is for: after the lease others use the blocks, and a late pull succeeds with their KV."""
    body = {**completion(320), "temperature": 0, "ignore_eos": True}
    local = pair.decode.post(COMPLETIONS, {**body, "max_tokens": 12, "cache_salt": "reference"}).json()
    first = pair.prefill.post(COMPLETIONS, {**body, "max_tokens": 1, "kv_transfer_params": REMOTE_DECODE})
    params = first.json()["kv_transfer_params"]
    time.sleep(LEASE_S + 1.5)
    for _ in range(5):  # as much as the whole pool of 182 blocks holds
        pair.prefill.post(COMPLETIONS, completion(1500, max_tokens=1))
    late = pair.decode.post(COMPLETIONS, {**body, "max_tokens": 12, "kv_transfer_params": params})
    assert late.status_code == 200
    assert late.json()["choices"][0]["text"] != local["choices"][0]["text"]


def test_too_few_blocks_kill_the_engine(doomed: Pair) -> None:
    params, _ = doomed.hand_off(COMPLETIONS, completion(64), max_tokens=1)
    assert len(params["remote_block_ids"][0]) == 2
    fewer = {"remote_block_ids": [params["remote_block_ids"][0][:1]]}
    _, response = doomed.hand_off(COMPLETIONS, completion(64), max_tokens=4, change=fewer)
    assert error(response) == (500, "InternalServerError", None, 500)
    assert response.json()["error"]["message"].startswith("EngineCore encountered an issue.")
    assert doomed.decode.process.wait(timeout=30) != 0 or doomed.kind == "vllm"


def _short_conversation() -> dict[str, Any]:
    """About 37 tokens on both engines, so that two blocks hold it."""
    return {"model": "smollm2", "messages": [{"role": "user", "content": f"What is {next(_starts)} in words?"}]}


def _await_failed(pair: Pair, before: int) -> None:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if pair.decode.counters().xfer_failed - before >= 2:
            return
        time.sleep(0.1)
    pytest.fail("the failed transfers were not counted")
