"""What comes through a handoff is what the decode worker says alone, but for ids and times, for every kind of request.

Both workers compute in float32, so that roundings do not decide between two tokens.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest

from hpcserve.nouns import Role
from tests.real.harness import SERVICE, Parts, Served, cancel, submit

pytestmark = pytest.mark.timeout(400)

SPLIT = "prefill-0>decode-0"
WHOLE = "decode-0"
CONTEXT = 2048
LOGPROB_TOLERANCE = 1e-3

Kind = Literal["chat", "completions"]

RIVERS = [
    {"role": "system", "content": "You answer briefly."},
    {"role": "user", "content": "Name three rivers of Europe, and say where each of them ends."},
]
STORY = "The lighthouse stood on a small island. Every evening the keeper climbed the stairs and"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a town.",
        "parameters": {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
    },
}
TOWN = {
    "type": "json_schema",
    "json_schema": {
        "name": "town",
        "schema": {
            "type": "object",
            "properties": {"name": {"enum": ["Paris", "Rome", "Oslo"]}, "people": {"type": "integer", "maximum": 9}},
            "required": ["name", "people"],
            "additionalProperties": False,
        },
    },
}
ASKED: dict[str, tuple[Kind, dict[str, Any], str]] = {
    "a chat": ("chat", {"messages": RIVERS}, SPLIT),
    "a chat in other scripts": (
        "chat",
        {"messages": [{"role": "user", "content": "Grüße! 你好 🌊 — wie heißt du?"}]},
        SPLIT,
    ),
    "a chat of several turns": (
        "chat",
        {"messages": [*RIVERS, {"role": "assistant", "content": "The Rhine."}, {"role": "user", "content": "Go on."}]},
        SPLIT,
    ),
    "a chat with logprobs": ("chat", {"messages": RIVERS, "logprobs": True, "top_logprobs": 3}, SPLIT),
    "a chat with max_completion_tokens": ("chat", {"messages": RIVERS, "max_completion_tokens": 5}, SPLIT),
    "a chat with two answers": ("chat", {"messages": RIVERS, "n": 2, "temperature": 0.8, "seed": 7}, WHOLE),
    "a chat with stop strings": ("chat", {"messages": RIVERS, "stop": [" of", ","], "max_tokens": 40}, SPLIT),
    "a chat with tools": ("chat", {"messages": RIVERS, "tools": [TOOL], "tool_choice": "auto"}, SPLIT),
    "a chat with a forced tool": (
        "chat",
        {
            "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
            "max_tokens": 40,
        },
        WHOLE,
    ),
    "a chat with a schema": ("chat", {"messages": RIVERS, "response_format": TOWN, "max_tokens": 40}, SPLIT),
    "a completion": ("completions", {"prompt": STORY}, SPLIT),
    "a completion of one word": ("completions", {"prompt": "Once"}, SPLIT),
    "a completion of one whole block": ("completions", {"prompt": list(range(1000, 1032))}, SPLIT),
    "a completion of many blocks": ("completions", {"prompt": (STORY + " looked at the sea. ") * 30}, SPLIT),
    "a completion of one token": ("completions", {"prompt": STORY, "max_tokens": 1}, SPLIT),
    "a completion with logprobs": ("completions", {"prompt": STORY, "logprobs": 3}, SPLIT),
    "a completion with echo": ("completions", {"prompt": STORY, "echo": True}, WHOLE),
    "a completion of two prompts": ("completions", {"prompt": [STORY, "Two ships met. They"]}, WHOLE),
    "a completion with stop strings": ("completions", {"prompt": STORY, "stop": ["."], "max_tokens": 60}, SPLIT),
    "a completion with a seed": (
        "completions",
        {"prompt": STORY, "temperature": 0.8, "seed": 7, "max_tokens": 4},
        SPLIT,
    ),
}


@pytest.fixture(scope="module")
def exact(parts: Parts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One prefill and one decode worker in float32."""
    args = ["--dtype", "float32", "--max-model-len", str(CONTEXT), "--enable-auto-tool-choice"]
    args += ["--tool-call-parser", "hermes"]
    text = SERVICE.read_text().replace("name: smollm2\n", f"name: answers\nargs: {json.dumps(args)}\n", 1)
    path = tmp_path_factory.mktemp("answers") / "answers.yaml"
    path.write_text(text)
    service = submit(parts, path, model="smollm2")
    yield service
    cancel(service.directory)


@pytest.fixture(scope="module")
def clients(exact: Served) -> Iterator[tuple[openai.OpenAI, openai.OpenAI]]:
    """The official client, at the router and at the decode worker itself."""
    worker = exact.endpoints()[Role.DECODE].url
    with (
        openai.OpenAI(base_url=f"{exact.url}/v1", api_key=exact.key, max_retries=0) as routed,
        openai.OpenAI(base_url=f"{worker}/v1", api_key=exact.engine_key, max_retries=0) as alone,
    ):
        yield routed, alone


def ask(client: openai.OpenAI, kind: Kind, **body: Any) -> Any:
    """The raw response; of a stream, one that can be parsed."""
    resource: Any = client.chat.completions if kind == "chat" else client.completions
    return resource.with_raw_response.create(**{"model": "smollm2", "temperature": 0, "max_tokens": 16, **body})


def route_of(response: Any) -> str:
    return str(response.headers["x-hpcserve-route"])


def without_ids(text: str) -> str:
    """A JSON text with every id and time replaced."""
    return re.sub(r'"created":\d+', '"created":0', re.sub(r'"id":"[^"]*"', '"id":""', text))


def assert_alike(found: Any, wanted: Any) -> None:
    """Equal, keys in the same order, and log-probabilities up to rounding."""
    if isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=LOGPROB_TOLERANCE)
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key in wanted:
            assert_alike(found[key], wanted[key])
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_alike(one, other)
    else:
        assert found == wanted


def joined(response: Any) -> dict[str, Any]:
    """A stream put together: vLLM joins tokens that its server did not get away one by one, and mixes choices."""
    whole: dict[str, Any] = {"choices": {}, "keys": set(), "usage": None}
    for chunk in response.parse():
        event = chunk.model_dump(exclude_unset=True)
        whole["keys"] |= set(event)
        whole["usage"] = event.get("usage") or whole["usage"]
        for choice in event["choices"]:
            kept = whole["choices"].setdefault(choice["index"], {"text": "", "logprobs": [], "tools": "", "ends": []})
            piece = choice.get("delta") or choice
            kept["text"] += piece.get("content") or piece.get("text") or ""
            kept["role"] = piece.get("role") or kept.get("role")
            for call in piece.get("tool_calls") or []:
                kept["tools"] += (call["function"].get("name") or "") + (call["function"].get("arguments") or "")
            kept["logprobs"] += _logprobs(choice.get("logprobs"))
            if choice.get("finish_reason"):
                kept["ends"].append((choice["finish_reason"], choice.get("stop_reason")))
    whole["choices"] = dict(sorted(whole["choices"].items()))
    return whole


def _logprobs(found: dict[str, Any] | None) -> list[Any]:
    if not found:
        return []
    if "content" in found:
        return list(found["content"] or [])
    return [list(one) for one in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True)]


@pytest.mark.parametrize("what", ASKED)
def test_an_answer_is_the_decode_workers_own(clients: tuple[openai.OpenAI, openai.OpenAI], what: str) -> None:
    kind, body, route = ASKED[what]
    routed, alone = (ask(client, kind, **body) for client in clients)
    assert route_of(routed) == route
    if "logprobs" in body:
        assert_alike(json.loads(without_ids(routed.text)), json.loads(without_ids(alone.text)))
    else:
        assert without_ids(routed.text) == without_ids(alone.text)
    assert routed.parse().usage.completion_tokens >= 1


@pytest.mark.parametrize("what", ASKED)
def test_a_stream_is_the_decode_workers_own(clients: tuple[openai.OpenAI, openai.OpenAI], what: str) -> None:
    kind, body, route = ASKED[what]
    for options in ({}, {"stream_options": {"include_usage": True}}):
        routed, alone = (ask(client, kind, stream=True, **body, **options) for client in clients)
        assert route_of(routed) == route
        found, wanted = joined(routed), joined(alone)
        assert_alike(found, wanted)
        assert bool(wanted["usage"]) == bool(options)
        assert all(choice["ends"] for choice in found["choices"].values())


def test_a_schema_is_kept(clients: tuple[openai.OpenAI, openai.OpenAI]) -> None:
    kind, body, _ = ASKED["a chat with a schema"]
    town = json.loads(ask(clients[0], kind, **body).parse().choices[0].message.content)
    assert town["name"] in {"Paris", "Rome", "Oslo"}
    assert set(town) == {"name", "people"}


@pytest.mark.parametrize("stream", [False, True])
def test_a_first_token_that_ends_the_answer(clients: tuple[openai.OpenAI, openai.OpenAI], stream: bool) -> None:
    """The prefill leg ends by it; vLLM hands its KV over all the same, and the decode worker ends at once."""
    prompt = f"The captain counted {'seven' if stream else 'eight'} barrels. " * 4
    first = ask(clients[1], "completions", prompt=prompt, max_tokens=1, extra_body={"return_token_ids": True})
    stop = json.loads(first.text)["choices"][0]["token_ids"]
    asked = {"prompt": prompt, "stream": stream, "extra_body": {"stop_token_ids": stop}}
    routed, alone = (ask(client, "completions", **asked) for client in clients)
    assert route_of(routed) == SPLIT
    if stream:
        found, wanted = joined(routed), joined(alone)
        assert found == wanted
        assert found["choices"][0]["ends"] == [("stop", stop[0])]
    else:
        assert without_ids(routed.text) == without_ids(alone.text)
        assert routed.parse().choices[0].finish_reason == "stop"


REFUSED: dict[str, tuple[Kind, dict[str, Any]]] = {
    "a prompt beyond the context": ("completions", {"prompt": [5] * (CONTEXT + 1)}),
    "a chat beyond the context": ("chat", {"messages": [{"role": "user", "content": "river " * CONTEXT}]}),
    "more tokens than the context": ("completions", {"prompt": "a", "max_tokens": CONTEXT + 1}),
    "a wrong temperature": ("chat", {"messages": RIVERS, "temperature": -1}),
    "no messages": ("chat", {"messages": []}),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused_is_refused_in_the_engines_words(
    clients: tuple[openai.OpenAI, openai.OpenAI], what: str, stream: bool
) -> None:
    kind, body = REFUSED[what]
    said = []
    for client in clients:
        with pytest.raises(openai.BadRequestError) as caught:
            ask(client, kind, **body, stream=stream)
        said.append((caught.value.status_code, caught.value.response.text))
    assert said[0] == said[1]
