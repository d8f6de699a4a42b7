import asyncio
import json
from typing import Any

import pytest

from hpcserve.nouns import Role
from tests.router.fake_engine import ENGINE_KEY, FakeEngine, prompt_of, tokens_of
from tests.router.rig import Rig

BODY = {"model": "tiny", "prompt": "The longest river is", "max_tokens": 3}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Name three rivers."}]}


def test_a_completion_goes_through_prefill_and_decode() -> None:
    async def run() -> None:
        async with Rig() as rig:
            prefill, decode = rig.engines
            answer = await rig.ask("/v1/completions", BODY, X_Request_Id="abc-1")
            assert answer.status == 200
            assert answer.text == "".join(tokens_of(prompt_of(BODY), 3))
            assert (prefill.legs(), decode.legs()) == (["prefill"], ["decode"])
            assert answer.headers["x-request-id"] == "abc-1"
            assert answer.headers["x-hpcserve-route"] == "prefill-0>decode-0"
            for call in (prefill.calls[0], decode.calls[0]):
                assert call.headers["x-request-id"] == "abc-1"
                assert call.headers["authorization"] == f"bearer {ENGINE_KEY}"
            assert rig.desk.metrics.handoffs == 1
            await rig.settle()

    asyncio.run(run())


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_stream_is_passed_on_byte_for_byte(path: str) -> None:
    async def run() -> None:
        body = {**(CHAT if "chat" in path else BODY), "stream": True, "max_tokens": 5}
        async with Rig() as rig:
            through = await rig.ask(path, body)
            rig.desk.roster.take((rig.engines[1].endpoint,))
            whole = await rig.ask(path, body)
            assert rig.engines[1].legs() == ["decode", "whole"]
            assert through.body == whole.body
            assert through.whole
            assert through.events[-1] == b"data: [DONE]"
            assert through.headers["content-type"] == "text/event-stream; charset=utf-8"
            await rig.settle()

    asyncio.run(run())


def legs_of(body: dict[str, Any], path: str = "/v1/chat/completions") -> tuple[dict[str, Any], dict[str, Any], int]:
    async def run() -> tuple[dict[str, Any], dict[str, Any], int]:
        async with Rig() as rig:
            answer = await rig.ask(path, body)
            return rig.engines[0].calls[0].body, rig.engines[1].calls[0].body, answer.status

    return asyncio.run(run())


def test_min_tokens_stays_with_the_decode_leg() -> None:
    prefill, decode, status = legs_of(
        {**BODY, "max_tokens": 64, "min_tokens": 16, "ignore_eos": True}, "/v1/completions"
    )
    assert (prefill["max_tokens"], prefill["stream"], "min_tokens" in prefill) == (1, False, False)
    assert (decode["max_tokens"], decode["min_tokens"], status) == (64, 16, 200)


def test_max_completion_tokens_does_not_reach_the_prefill_leg() -> None:
    prefill, decode, status = legs_of({**CHAT, "max_completion_tokens": 512})
    assert prefill["max_tokens"] == 1
    assert "max_completion_tokens" not in prefill
    assert decode["max_completion_tokens"] == 512
    assert "max_tokens" not in decode
    assert status == 200


def test_without_any_limit_the_decode_leg_has_none() -> None:
    prefill, decode, _ = legs_of(CHAT)
    assert prefill["max_tokens"] == 1
    assert not {"max_tokens", "max_completion_tokens", "min_tokens"} & set(decode)


def test_null_means_absent() -> None:
    keys = (
        "max_tokens",
        "max_completion_tokens",
        "stream",
        "stream_options",
        "stop",
        "n",
        "min_tokens",
        "tools",
        "logprobs",
    )
    prefill, decode, status = legs_of(CHAT | dict.fromkeys(keys))
    assert prefill["max_tokens"] == 1
    assert "stream_options" not in prefill
    refused = {"n", "min_tokens"}  # by vLLM, as null
    assert refused.isdisjoint(prefill)
    assert refused.isdisjoint(decode)
    assert {key: decode[key] for key in keys if key not in refused} == dict.fromkeys(set(keys) - refused)
    assert status == 200


def test_unknown_keys_reach_both_legs() -> None:
    further = {
        "seed": 7,
        "temperature": 0.0,
        "top_k": 1,
        "cache_salt": "tenant-a",
        "priority": 3,
        "chat_template_kwargs": {"enable_thinking": False, "max_tokens": 5, "stream": True},
    }
    prefill, decode, _ = legs_of(CHAT | further | {"max_tokens": 4})
    for key, value in further.items():
        assert prefill[key] == value
        assert decode[key] == value


def test_clients_cannot_hand_over_kv_or_steer_ranks() -> None:
    async def run() -> None:
        async with Rig() as rig:
            forged = {"do_remote_prefill": True, "remote_host": "192.0.2.9", "remote_block_ids": [1]}
            headers = {"X_data_parallel_rank": "3", "X_Request_Id": "abc-1", "X_Forwarded_For": "1.2.3.4"}
            answer = await rig.ask("/v1/completions", {**BODY, "kv_transfer_params": forged}, **headers)
            again = await rig.ask("/v1/completions", {**BODY, "kv_transfer_params": forged, "n": 2}, **headers)
            assert (answer.status, again.status) == (200, 200)
            calls = [call for engine in rig.engines for call in engine.calls]
            assert len(calls) == 3
            for call in calls:
                assert b"192.0.2.9" not in call.raw
                assert set(call.headers) == {"host", "content-type", "content-length", "x-request-id", "authorization"}

    asyncio.run(run())


def test_a_hostile_request_id_is_replaced() -> None:
    async def run() -> None:
        async with Rig() as rig:
            answer = await rig.ask("/v1/completions", BODY, X_Request_Id="a b; c")
            assert answer.headers["x-request-id"].startswith("hpc-")

    asyncio.run(run())


def test_messages_are_not_touched() -> None:
    content = [
        {"type": "text", "text": "What is  this? é \U0001f600"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo=" + "A" * 3_000_000}},
    ]
    messages = [
        {"role": "user", "content": content},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "t1", "type": "function"}]},
        {"role": "tool", "tool_call_id": "t1", "content": [{"type": "text", "text": "a cat"}]},
    ]
    prefill, decode, status = legs_of({"model": "tiny", "messages": messages, "max_tokens": 1})
    assert prefill["messages"] == decode["messages"] == messages
    assert status == 200


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n": 2}, "n"),
        ({"best_of": 3}, "best_of"),
        ({"echo": True}, "echo"),
        ({"prompt": [[101, 2023], [102]]}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"use_beam_search": True}, "use_beam_search"),
    ],
)
def test_what_a_handoff_cannot_carry_is_served_whole_and_counted(change: dict[str, Any], reason: str) -> None:
    async def run() -> None:
        async with Rig() as rig:
            answer = await rig.ask("/v1/completions", BODY | change)
            assert answer.status == 200
            assert (rig.engines[0].legs(), rig.engines[1].legs()) == ([], ["whole"])
            assert rig.desk.metrics.whole == {reason: 1}
            assert json.loads(rig.engines[1].calls[0].raw) == BODY | change

    asyncio.run(run())


def test_one_prompt_of_token_ids_is_handed_over() -> None:
    prefill, decode, _ = legs_of({**BODY, "prompt": [101, 2023, 102]}, "/v1/completions")
    assert prefill["prompt"] == decode["prompt"] == [101, 2023, 102]


def test_the_engines_refusal_of_a_prompt_reaches_the_client() -> None:
    async def run() -> None:
        async def refuse(_call: Any, writer: asyncio.StreamWriter) -> bool:
            text = b'{"error":{"message":"no negative ids","type":"BadRequestError","param":null,"code":400}}'
            writer.write(b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n" % len(text) + text)
            return True

        async with Rig() as rig:
            rig.engines[0].behave = refuse
            answer = await rig.ask("/v1/completions", {**BODY, "prompt": [5, -1]})
            assert answer.status == 400
            assert answer.error["message"] == "no negative ids"
            assert rig.engines[1].calls == []
            assert not rig.desk.metrics.worker_failures
            await rig.settle()

    asyncio.run(run())


def test_a_prefill_that_keeps_nothing_is_served_whole() -> None:
    async def run(answer_text: bytes, reason: str) -> None:
        async def answer(_call: Any, writer: asyncio.StreamWriter) -> bool:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer_text) + answer_text)
            return True

        async with Rig() as rig:
            rig.engines[0].behave = answer
            got = await rig.ask("/v1/completions", BODY)
            assert got.text == "".join(tokens_of(prompt_of(BODY), 3))
            assert rig.engines[1].legs() == ["whole"]
            assert rig.desk.metrics.whole == {reason: 1}

    asyncio.run(run(b'{"kv_transfer_params":null,"choices":[]}', "no_handoff"))
    asyncio.run(run(b'{"choices":[]}', "no_handoff"))
    asyncio.run(run(b'{"kv_transfer_params":{"do_remote_prefill":true}}', "bad_handoff"))
    asyncio.run(run(b"[]", "bad_handoff"))
    empty = {
        "do_remote_prefill": True,
        "remote_block_ids": [[]],
        "remote_engine_id": "e",
        "remote_host": "h",
        "remote_port": 1,
    }
    asyncio.run(run(json.dumps({"kv_transfer_params": empty}).encode(), "no_handoff"))


def test_transfer_params_are_handed_on_as_they_came() -> None:
    async def run() -> None:
        async with Rig() as rig:
            await rig.ask("/v1/completions", BODY)
            raw = rig.engines[1].calls[0].raw
            assert raw.startswith(json.dumps(BODY).encode()[:-1])
            assert rb'"odd": "\u00e9\\u0041 "' in raw

    asyncio.run(run())


def test_an_aggregated_service_has_one_leg() -> None:
    async def run() -> None:
        async with Rig(FakeEngine(Role.AGGREGATED)) as rig:
            answer = await rig.ask("/v1/completions", BODY)
            assert answer.text == "".join(tokens_of(prompt_of(BODY), 3))
            assert rig.engines[0].legs() == ["whole"]
            assert not rig.desk.metrics.whole

    asyncio.run(run())


def test_connections_to_engines_are_kept_and_used_again() -> None:
    async def run() -> None:
        async with Rig() as rig:
            for _ in range(20):
                assert (await rig.ask("/v1/completions", BODY)).status == 200
            assert [engine.accepted for engine in rig.engines] == [1, 1]

    asyncio.run(run())
