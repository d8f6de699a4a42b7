"""One engine's HTTP API: the simulated one answers as vLLM does."""

import json
from typing import Any

import httpx
import pytest

from tests.contract.pair import BLOCK_SIZE, CHAT, COMPLETIONS, MODEL_LEN, Pair
from tests.contract.shapes import (
    CHAT_CHOICE,
    CHOICE,
    CHUNK,
    CHUNK_CHOICE,
    MESSAGE,
    MODEL_ENTRY,
    USAGE,
    WHOLE,
    WHOLE_CHAT,
    error,
    events,
)

IDS = list(range(1000, 1012))
MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
NEVER_NULL = (
    "add_special_tokens",
    "bad_words",
    "ignore_eos",
    "include_stop_str_in_output",
    "length_penalty",
    "min_tokens",
    "priority",
    "request_id",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "use_beam_search",
)
NEVER_NULL_IN_CHATS = ("add_generation_prompt", "continue_final_message", "echo", "include_reasoning")


def complete(pair: Pair, **body: Any) -> httpx.Response:
    return pair.prefill.post(COMPLETIONS, {"model": "smollm2", "temperature": 0, **body})


def chat(pair: Pair, **body: Any) -> httpx.Response:
    return pair.prefill.post(CHAT, {"model": "smollm2", "temperature": 0, "messages": MESSAGES, **body})


@pytest.mark.parametrize("path", ["/health", "/ping"])
def test_health_is_open_and_empty(pair: Pair, path: str) -> None:
    response = httpx.get(pair.prefill.url + path, trust_env=False)
    assert (response.status_code, response.content) == (200, b"")


def test_version_is_open(pair: Pair) -> None:
    content = httpx.get(f"{pair.prefill.url}/version", trust_env=False).json()
    assert list(content) == ["version"]
    assert ("simulated" in content["version"]) == (pair.kind == "sim")


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic a key of the contract tests", ""])
def test_v1_asks_for_the_key(pair: Pair, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    for method, path in (("GET", "/v1/models"), ("POST", COMPLETIONS), ("GET", "/v1/nothing")):
        response = httpx.request(method, pair.prefill.url + path, headers=headers, trust_env=False)
        assert (response.status_code, response.json()) == (401, {"error": "Unauthorized"})


def test_unknown_path_and_method(pair: Pair) -> None:
    missing = pair.prefill.client.get("/v1/nothing")
    assert (missing.status_code, missing.json()) == (404, {"detail": "Not Found"})
    wrong = pair.prefill.client.get(COMPLETIONS)
    assert (wrong.status_code, wrong.json()) == (405, {"detail": "Method Not Allowed"})
    assert wrong.headers["allow"] == "POST"


def test_models(pair: Pair) -> None:
    content = pair.prefill.client.get("/v1/models").json()
    assert content["object"] == "list"
    (model,) = content["data"]
    assert set(model) == MODEL_ENTRY
    assert (model["id"], model["max_model_len"]) == ("smollm2", MODEL_LEN)
    assert ("simulated" in model["owned_by"]) == (pair.kind == "sim")


def test_tokenize_text_and_conversation(pair: Pair) -> None:
    for body in ({"prompt": "Hello world"}, {"messages": MESSAGES}):
        content = pair.prefill.post("/tokenize", {"model": "smollm2", **body}).json()
        assert set(content) == {"count", "max_model_len", "tokens", "token_strs"}
        assert content["count"] == len(content["tokens"]) > 0
        assert content["max_model_len"] == MODEL_LEN


def test_completion(pair: Pair) -> None:
    response = pair.prefill.post(
        COMPLETIONS, {"model": "smollm2", "prompt": IDS, "max_tokens": 4, "ignore_eos": True}, **{"X-Request-Id": "r7"}
    )
    content = response.json()
    assert response.headers["content-type"] == "application/json"
    assert set(content) == WHOLE
    assert (content["id"], content["object"], content["model"]) == ("cmpl-r7", "text_completion", "smollm2")
    (choice,) = content["choices"]
    assert set(choice) == CHOICE
    assert (choice["index"], choice["finish_reason"]) == (0, "length")
    assert set(content["usage"]) == USAGE
    assert content["usage"]["prompt_tokens"] == len(IDS)
    assert content["usage"]["completion_tokens"] == 4
    assert content["usage"]["total_tokens"] == len(IDS) + 4
    assert content["kv_transfer_params"] is None


def test_completion_is_repeatable(pair: Pair) -> None:
    first, second = (complete(pair, prompt=IDS, max_tokens=8).json()["choices"][0]["text"] for _ in range(2))
    assert first == second


def test_max_tokens_defaults_to_sixteen(pair: Pair) -> None:
    assert complete(pair, prompt=IDS, ignore_eos=True).json()["usage"]["completion_tokens"] == 16


def test_max_tokens_is_cut_to_what_the_context_leaves(pair: Pair) -> None:
    usage = complete(pair, prompt=[5] * (MODEL_LEN - 8), max_tokens=20, ignore_eos=True).json()["usage"]
    assert usage["completion_tokens"] == 8


@pytest.mark.parametrize("prompt", [["a b", "c"], [[504, 3575], [282]]])
def test_several_prompts(pair: Pair, prompt: list[Any]) -> None:
    content = complete(pair, prompt=prompt, max_tokens=2, ignore_eos=True).json()
    assert [choice["index"] for choice in content["choices"]] == [0, 1]
    assert content["usage"]["completion_tokens"] == 4


def test_several_answers(pair: Pair) -> None:
    content = complete(pair, prompt=IDS, n=2, max_tokens=2, temperature=1, ignore_eos=True).json()
    assert [choice["index"] for choice in content["choices"]] == [0, 1]
    assert content["usage"] == {**content["usage"], "prompt_tokens": len(IDS), "completion_tokens": 4}


def test_token_ids_and_echo(pair: Pair) -> None:
    content = complete(pair, prompt=IDS, max_tokens=3, ignore_eos=True, return_token_ids=True).json()
    assert content["choices"][0]["prompt_token_ids"] == IDS
    assert len(content["choices"][0]["token_ids"]) == 3
    echoed = complete(pair, prompt="The capital", max_tokens=1, ignore_eos=True, echo=True).json()
    assert echoed["choices"][0]["text"].startswith("The capital")


@pytest.mark.timeout(120)  # vLLM on CPU compiles its log-probability kernels at the first such request: 20 s
def test_completion_logprobs(pair: Pair) -> None:
    logprobs = complete(pair, prompt=IDS, max_tokens=2, ignore_eos=True, logprobs=2).json()["choices"][0]["logprobs"]
    assert set(logprobs) == {"text_offset", "token_logprobs", "tokens", "top_logprobs"}
    assert [len(alternatives) for alternatives in logprobs["top_logprobs"]] == [2, 2]
    for token, logprob, alternatives in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert alternatives[token] == logprob <= 0


@pytest.mark.timeout(120)
def test_chat_logprobs(pair: Pair) -> None:
    content = chat(pair, max_tokens=2, logprobs=True, top_logprobs=2).json()
    for token in content["choices"][0]["logprobs"]["content"]:
        assert set(token) == {"token", "logprob", "bytes", "top_logprobs"}
        assert [set(other) for other in token["top_logprobs"]] == [{"token", "logprob", "bytes"}] * 2
        assert bytes(token["bytes"]).decode() == token["token"]


def test_stream(pair: Pair) -> None:
    body = {"prompt": IDS, "max_tokens": 4, "ignore_eos": True}
    whole = complete(pair, **body).json()["choices"][0]["text"]
    chunks = events(complete(pair, **body, stream=True))
    assert [set(chunk) for chunk in chunks] == [CHUNK] * 3 + [CHUNK | {"system_fingerprint"}]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert all(set(chunk["choices"][0]) == CHUNK_CHOICE for chunk in chunks)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "length"]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole


def test_stream_with_usage(pair: Pair) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(complete(pair, prompt=IDS, max_tokens=2, ignore_eos=True, stream=True, stream_options=options))
    assert [chunk["usage"]["completion_tokens"] for chunk in chunks] == [1, 2, 2]
    assert chunks[-1]["choices"] == []
    assert set(chunks[-1]) == CHUNK | {"usage", "system_fingerprint"}
    assert set(chunks[-1]["usage"]) == {"prompt_tokens", "total_tokens", "completion_tokens"}
    options = {"include_usage": True}
    chunks = events(complete(pair, prompt=IDS, max_tokens=2, ignore_eos=True, stream=True, stream_options=options))
    assert ["usage" in chunk for chunk in chunks] == [False, False, True]


def test_chat(pair: Pair) -> None:
    content = chat(pair, max_tokens=2, ignore_eos=True).json()
    assert set(content) == WHOLE_CHAT
    assert content["object"] == "chat.completion"
    assert content["id"].startswith("chatcmpl-")
    (choice,) = content["choices"]
    assert set(choice) == CHAT_CHOICE
    assert set(choice["message"]) == MESSAGE
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "length"


def test_max_completion_tokens_wins_in_chat_only(pair: Pair) -> None:
    usage = chat(pair, max_tokens=8, max_completion_tokens=2, ignore_eos=True).json()["usage"]
    assert usage["completion_tokens"] == 2
    usage = complete(pair, prompt=IDS, max_tokens=4, max_completion_tokens=2, ignore_eos=True).json()["usage"]
    assert usage["completion_tokens"] == 4


def test_chat_stream_begins_with_the_role(pair: Pair) -> None:
    first, *middle, last = events(chat(pair, max_tokens=3, ignore_eos=True, stream=True))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert set(first) == CHUNK | {"prompt_token_ids", "prompt_text"}
    assert set(first["choices"][0]) == {"index", "delta", "logprobs", "finish_reason"}
    for chunk in middle:
        assert set(chunk) == CHUNK
        assert set(chunk["choices"][0]) == {"index", "delta", "logprobs", "finish_reason", "token_ids"}
        assert list(chunk["choices"][0]["delta"]) == ["content"]
    assert set(last) == CHUNK | {"system_fingerprint"}
    assert set(last["choices"][0]) == {"index", "delta", "logprobs", "finish_reason", "stop_reason", "token_ids"}
    assert last["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"model": "other", "prompt": "a"}, (404, "NotFoundError", "model", 404)),
        ({"model": 5, "prompt": "a"}, (400, "Bad Request", "body.model", 400)),
        ({"prompt": "a", "max_tokens": MODEL_LEN + 1}, (400, "BadRequestError", "max_tokens", 400)),
        ({"prompt": "a", "max_tokens": 0}, (400, "BadRequestError", "max_tokens", 400)),
        ({"prompt": "a", "max_tokens": "x"}, (400, "Bad Request", "body.max_tokens", 400)),
        ({"prompt": "a", "max_tokens": 1, "min_tokens": 5}, (400, "BadRequestError", None, 400)),
        ({}, (400, "BadRequestError", "prompt", 400)),
        ({"prompt": ""}, (400, "BadRequestError", "prompt", 400)),
        ({"prompt": []}, (400, "BadRequestError", None, 400)),
        ({"prompt": [-1, 5]}, (400, "Bad Request", "body.prompt.0", 400)),
        ({"prompt": ["a", 1]}, (400, "Bad Request", "body.prompt.0", 400)),
        ({"prompt": [10**9]}, (400, "BadRequestError", None, 400)),
        ({"prompt": [5] * (MODEL_LEN + 1)}, (400, "BadRequestError", "input_tokens", 400)),
        ({"prompt": "a", "temperature": -1}, (400, "BadRequestError", "temperature", 400)),
        ({"prompt": "a", "temperature": 3}, (400, "BadRequestError", "temperature", 400)),
        ({"prompt": "a", "top_p": 5}, (400, "BadRequestError", "top_p", 400)),
        ({"prompt": "a", "n": 0}, (400, "BadRequestError", None, 400)),
        ({"prompt": "a", "add_special_tokens": "x"}, (400, "Bad Request", "body.add_special_tokens", 400)),
        ({"prompt": "a", "stream_options": {"include_usage": True}}, (400, "BadRequestError", "stream_options", 400)),
        ({"prompt": IDS, "kv_transfer_params": "x"}, (400, "Bad Request", "body.kv_transfer_params", 400)),
        *(({"prompt": "a", name: None}, (400, "Bad Request", f"body.{name}", 400)) for name in (*NEVER_NULL, "n")),
    ],
)
def test_refused_completions(pair: Pair, body: dict[str, Any], expected: tuple[int, str, str | None, int]) -> None:
    assert error(pair.prefill.post(COMPLETIONS, body)) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"model": "other", "messages": MESSAGES}, (404, "NotFoundError", "model", 404)),
        ({}, (400, "Bad Request", "body.messages", 400)),
        ({"messages": []}, (400, "BadRequestError", None, 400)),
        ({"messages": MESSAGES, "max_tokens": MODEL_LEN + 1}, (400, "BadRequestError", "max_tokens", 400)),
        *(
            ({"messages": MESSAGES, name: None}, (400, "Bad Request", f"body.{name}", 400))
            for name in (*NEVER_NULL, *NEVER_NULL_IN_CHATS)
        ),
    ],
)
def test_refused_chats(pair: Pair, body: dict[str, Any], expected: tuple[int, str, str | None, int]) -> None:
    assert error(pair.prefill.post(CHAT, body)) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"{", (400, "Bad Request", "body.1", 400)),
        (b"hello", (400, "Bad Request", "body.0", 400)),
        (b"[]", (400, "Bad Request", "body", 400)),
        (b"", (400, "Bad Request", "body", 400)),
        (b'{"prompt":"a","temperature":NaN}', (400, "BadRequestError", "temperature", 400)),
        (b'{"prompt":"\\ud800","max_tokens":1}', (400, "BadRequestError", None, 400)),
    ],
)
def test_refused_bytes(pair: Pair, raw: bytes, expected: tuple[int, str, str | None, int]) -> None:
    response = pair.prefill.client.post(COMPLETIONS, content=raw, headers={"Content-Type": "application/json"})
    assert error(response) == expected


def test_body_that_is_not_utf8(pair: Pair) -> None:
    raw = b'{"prompt":"\xe9"}'
    response = pair.prefill.client.post(COMPLETIONS, content=raw, headers={"Content-Type": "application/json"})
    assert (response.status_code, response.json()) == (400, {"detail": "There was an error parsing the body"})


def test_bodies_that_are_taken(pair: Pair) -> None:
    taken = [
        b'\xef\xbb\xbf{"prompt":"a","max_tokens":1}',
        b'{"prompt":"a","max_tokens":1,"unknown_key":1}',
        b'{"prompt":"a","max_tokens":1,"stream_options":null,"stop":null,"seed":null,"kv_transfer_params":{}}',
    ]
    taken += [b'{"prompt":"a","max_tokens":1,"add_special_tokens":%s}' % said for said in (b'"Off"', b"1", b"0.0")]
    for raw in taken:
        response = pair.prefill.client.post(COMPLETIONS, content=raw, headers={"Content-Type": "application/json"})
        assert response.status_code == 200, response.text


@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_null_is_taken_for_all_else(pair: Pair, kind: str) -> None:
    names = ["stream", "stream_options", "stop", "seed", "temperature", "top_p", "logprobs", "user"]
    names += ["echo"] if kind == "completions" else ["n", "max_tokens", "tools", "tool_choice"]
    body: dict[str, Any] = {"prompt": "a"} if kind == "completions" else {"messages": MESSAGES}
    body |= {"max_tokens" if kind == "completions" else "max_completion_tokens": 2}
    path = COMPLETIONS if kind == "completions" else CHAT
    response = pair.prefill.post(path, {**body, **dict.fromkeys(names)})
    assert response.status_code == 200, response.text


def test_other_content_type_is_refused(pair: Pair) -> None:
    response = pair.prefill.client.post(COMPLETIONS, content=b'{"prompt":"a"}', headers={"Content-Type": "text/plain"})
    assert error(response) == (400, "Bad Request", None, 400)


def test_message_texts_of_refusals(pair: Pair) -> None:
    text = complete(pair, prompt="a", max_tokens=MODEL_LEN + 1).json()["error"]["message"]
    assert text == (
        f"max_tokens={MODEL_LEN + 1} cannot be greater than max_model_len={MODEL_LEN}. "
        f"Please request fewer output tokens. (parameter=max_tokens, value={MODEL_LEN + 1})"
    )
    text = pair.prefill.post(COMPLETIONS, {"model": "other", "prompt": "a"}).json()["error"]["message"]
    assert text == "The model `other` does not exist. Valid aliases: smollm2."


def test_connection_serves_again_after_a_refusal(pair: Pair) -> None:
    with httpx.Client(base_url=pair.prefill.url, trust_env=False) as client:
        refused = client.post(COMPLETIONS, json={"prompt": "x" * 5000})
        assert refused.status_code == 401
        assert client.get("/health").status_code == 200


def test_counters_of_a_local_request(pair: Pair) -> None:
    prompt = list(range(2000, 2000 + 3 * BLOCK_SIZE))
    before = pair.prefill.counters()
    complete(pair, prompt=prompt, max_tokens=5, ignore_eos=True)
    complete(pair, prompt=prompt, max_tokens=5, ignore_eos=True)
    after = pair.prefill.counters()
    assert after.prompt_tokens - before.prompt_tokens == 2 * len(prompt)
    assert after.generation_tokens - before.generation_tokens == 10
    assert after.local_hit_tokens - before.local_hit_tokens == 2 * BLOCK_SIZE
    assert (after.running, after.waiting, after.xfer_count) == (0, 0, before.xfer_count)
    assert after.block_size == BLOCK_SIZE


def test_disconnect_aborts(pair: Pair) -> None:
    body = {"model": "smollm2", "prompt": IDS, "max_tokens": MODEL_LEN - 100, "ignore_eos": True, "stream": True}
    with pair.decode.client.stream("POST", COMPLETIONS, json=body) as response:
        next(response.iter_bytes())
    for _ in range(100):
        if pair.decode.counters().running == 0:
            return
    pytest.fail(f"the request still runs: {json.dumps(pair.decode.counters().model_dump())}")
