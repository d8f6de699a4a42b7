"""What is known of a prompt at once, what is guessed of the rest, and that neither ever stands in a request's way."""

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from hpcserve.router import kv_knowledge
from hpcserve.router.kv_knowledge import KvKnowledge
from hpcserve.router.kv_prompt import Kind, Known
from hpcserve.router.tokens import PromptTokens
from hpcserve.routing.block_hashes import block_keys
from hpcserve.routing.chat_template import ChatTemplate
from hpcserve.routing.kv_index import KvIndex
from tests.router.test_tokens import PARTS
from tests.tiny_model import byte_level, loaded

BLOCK = 4
SYSTEM = {"role": "system", "content": "Be brief. " * 200}
QUESTION = {"role": "user", "content": "Name three rivers."}
NO_SPECIALS: dict[str, Any] = {"special_tokens": {}, "strftime_now": str}
ANSWER = {"role": "assistant", "content": "the sea, the wind"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    loaded(byte_level(), directory)
    return directory


@pytest.fixture
def tokens(tokenizer: Path) -> PromptTokens:
    return loaded(byte_level(), tokenizer)


def fields(body: Mapping[str, Any]) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(json.dumps(body), type=dict[str, msgspec.Raw])


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, msgspec.Raw]:
    return fields({"messages": list(messages), **more})


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def exact(tokens: PromptTokens) -> tuple[KvKnowledge, KvIndex]:
    index = KvIndex()
    index.block_size = BLOCK
    return KvKnowledge(now_s=Clock(), index=index, tokens=tokens), index


def hold(
    index: KvIndex, worker: str, tokens: PromptTokens, body: Mapping[str, msgspec.Raw], *, salt: str | None = None
) -> list[int]:
    """The worker holds this whole prompt."""
    keys = block_keys(tokens.tokens("chat", body), BLOCK, salt=salt)
    index.store(worker, list(keys), keys)
    return keys


def test_without_events_routes_are_remembered_for_a_while() -> None:
    clock = Clock()
    knowledge = KvKnowledge(now_s=clock)
    first = knowledge.read("chat", chat(SYSTEM, QUESTION))
    assert knowledge.overlaps(first) == {}
    knowledge.sent(first, "prefill-0")
    second = knowledge.read("chat", chat(SYSTEM, QUESTION, ANSWER, QUESTION))
    assert 350 <= knowledge.overlaps(second)["prefill-0"] <= second.text_bytes / 4
    clock.now_s = 181.0
    assert knowledge.overlaps(second) == {}


def test_nothing_is_guessed_of_a_worker_that_keeps_no_prefixes() -> None:
    knowledge = KvKnowledge(now_s=Clock())
    knowledge.without_cache = frozenset({"decode-0"})
    prompt = knowledge.read("chat", chat(SYSTEM))
    knowledge.sent(prompt, "prefill-0")
    knowledge.sent(prompt, "decode-0")
    assert set(knowledge.overlaps(prompt)) == {"prefill-0"}


@pytest.mark.parametrize("more", [{"cache_salt": "tenant-a"}, {"tools": []}, {"chat_template_kwargs": {"a": 1}}])
def test_what_changes_the_prompts_beginning_separates(more: dict[str, Any]) -> None:
    knowledge = KvKnowledge(now_s=Clock())
    knowledge.sent(knowledge.read("chat", chat(SYSTEM)), "prefill-0")
    assert knowledge.overlaps(knowledge.read("chat", chat(SYSTEM))) != {}
    assert knowledge.overlaps(knowledge.read("chat", chat(SYSTEM, **more))) == {}


def test_events_tell_exactly_and_the_last_token_is_never_cached(tokens: PromptTokens) -> None:
    knowledge, index = exact(tokens)
    body = chat(SYSTEM, QUESTION)
    keys = hold(index, "prefill-0", tokens, body)
    index.store("prefill-1", keys[:5], keys[:5])
    prompt = knowledge.read("chat", body)
    assert prompt.tokens == len(tokens.tokens("chat", body)) // 4
    whole = (prompt.tokens - 1) // BLOCK * BLOCK
    assert knowledge.overlaps(prompt) == {"prefill-0": whole, "prefill-1": 5 * BLOCK}


def test_a_worker_that_tells_is_asked_and_not_guessed_at(tokens: PromptTokens) -> None:
    """It was sent the prompt, and has evicted all of it since but one block."""
    knowledge, index = exact(tokens)
    body = chat(SYSTEM, QUESTION)
    keys = hold(index, "prefill-0", tokens, body)
    prompt = knowledge.read("chat", body)
    knowledge.sent(prompt, "prefill-0")
    knowledge.sent(prompt, "silent-0")
    index.remove("prefill-0", keys[1:])
    told = knowledge.overlaps(prompt)
    assert told["prefill-0"] == BLOCK
    assert told["silent-0"] > BLOCK


def test_a_doubted_worker_is_guessed_at_again(tokens: PromptTokens) -> None:
    knowledge, index = exact(tokens)
    body = chat(SYSTEM, QUESTION)
    hold(index, "prefill-0", tokens, body)
    knowledge.doubted = {"prefill-0": "predicted hits do not show"}
    prompt = knowledge.read("chat", body)
    assert knowledge.overlaps(prompt) == {}
    knowledge.answered(prompt, "prefill-0")
    assert knowledge.predicted_prompts["prefill-0"] == 0
    knowledge.sent(prompt, "prefill-0")
    assert knowledge.overlaps(prompt)["prefill-0"] > 0


def test_no_text_is_remembered_where_everybody_tells_of_tokens(tokens: PromptTokens) -> None:
    """It would be work for nothing; a doubt changes that."""
    knowledge, _ = exact(tokens)
    knowledge.some_are_silent = False
    body = chat(SYSTEM, QUESTION)
    tokens.tokens("chat", body)
    knowledge.sent(knowledge.read("chat", body), "prefill-0")
    assert len(knowledge.memory) == 0
    knowledge.doubted = {"prefill-0": "no KV events come"}
    knowledge.sent(knowledge.read("chat", body), "prefill-0")
    assert knowledge.overlaps(knowledge.read("chat", body))["prefill-0"] > 0


def test_a_prompt_that_comes_again_is_not_rendered_again_and_no_other_is_taken_for_it(tokens: PromptTokens) -> None:
    knowledge, index = exact(tokens)
    bodies = [
        chat(SYSTEM, QUESTION),
        chat(SYSTEM, QUESTION, cache_salt="tenant-a"),
        chat(SYSTEM, QUESTION, add_generation_prompt=False),
        chat(SYSTEM, QUESTION, add_special_tokens=True),
    ]
    for body in bodies:
        tokens.tokens("chat", body)
    first = [knowledge.read("chat", body) for body in bodies]
    assert len({tuple(prompt.keys) for prompt in first}) == len({prompt.keys[-1] for prompt in first}) >= 3
    knowledge.tokens = _NeverAsked()
    again = [knowledge.read("chat", body) for body in bodies]
    assert [(prompt.tokens, prompt.keys) for prompt in again] == [(prompt.tokens, prompt.keys) for prompt in first]
    index.block_size = 2 * BLOCK
    with pytest.raises(AssertionError):
        knowledge.read("chat", bodies[0])


class _NeverAsked:
    def look(self, kind: object, fields: object) -> Known:
        raise AssertionError(kind, fields)

    def encode(self, pieces: object) -> dict[str, bytes]:
        raise AssertionError(pieces)

    def whole(self, kind: object, fields: object) -> tuple[bytes, dict[str, bytes]]:
        raise AssertionError(kind, fields)

    def learn(self, pieces: object) -> None:
        raise AssertionError(pieces)


def test_what_is_kept_of_whole_prompts_is_bounded(tokens: PromptTokens) -> None:
    knowledge, _ = exact(tokens)
    for number in range(60):
        knowledge.read("completions", fields({"prompt": [number] * 10_000}))
    assert 0 < len(knowledge._seen) < 60
    assert sum(len(keys) for _, keys in knowledge._seen.values()) <= 100_000


def test_prompts_shorter_than_a_block_are_bounded_too(tokens: PromptTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_knowledge, "_MOST_SEEN_KEYS", 50)
    knowledge, _ = exact(tokens)
    for number in range(200):
        knowledge.read("completions", fields({"prompt": [number]}))
    assert 0 < len(knowledge._seen) <= 50


def test_a_salt_is_part_of_what_is_asked_for(tokens: PromptTokens) -> None:
    knowledge, index = exact(tokens)
    salted = chat(SYSTEM, QUESTION, cache_salt="tenant-a", seed=7, chat_template_kwargs={"enable_thinking": False})
    hold(index, "prefill-0", tokens, salted, salt="tenant-a")
    assert knowledge.overlaps(knowledge.read("chat", salted)) != {}
    assert knowledge.overlaps(knowledge.read("chat", chat(SYSTEM, QUESTION))) == {}


def test_the_beginning_counts_at_once_and_the_rest_from_the_next_time_on(tokens: PromptTokens) -> None:
    async def body() -> None:
        knowledge, index = exact(tokens)
        first = chat(SYSTEM, QUESTION)
        hold(index, "prefill-0", tokens, first)
        grown = chat(SYSTEM, QUESTION, ANSWER, QUESTION)
        prompt = knowledge.read("chat", grown)
        assert prompt.tokens is None
        known = len(prompt.keys) * BLOCK
        assert knowledge.overlaps(prompt)["prefill-0"] == known > 0
        async with asyncio.timeout(20):
            while (again := knowledge.read("chat", grown)).tokens is None:  # noqa: ASYNC110 - a thread works
                await asyncio.sleep(0.01)
        assert len(again.keys) * BLOCK > known
        assert knowledge.overlaps(again)["prefill-0"] >= known
        knowledge.close()

    asyncio.run(body())


LONG: dict[str, tuple[Literal["chat", "completions"], dict[str, Any]]] = {
    "text": ("chat", {"messages": [{"role": "user", "content": "x " * 100_000}]}),
    "messages": ("chat", {"messages": [{"role": "user", "content": "x"}] * 2000}),
    "tools": ("chat", {"messages": [], "tools": [{"function": {"name": "x" * 200_000}}]}),
    "ids": ("completions", {"prompt": [7] * 100_000}),
}


@pytest.mark.parametrize("what", list(LONG))
def test_a_long_prompt_is_rendered_beside_the_loop_and_known_when_it_comes_again(
    tokens: PromptTokens, what: str
) -> None:
    kind, body = LONG[what]
    made = fields(body)
    threads: list[threading.Thread] = []

    class Watched(PromptTokens):
        def _text(self, kind: Kind, fields: Mapping[str, msgspec.Raw]) -> bytes | tuple[str, bool]:
            threads.append(threading.current_thread())
            return super()._text(kind, fields)

    tokens.__class__ = Watched

    async def run() -> None:
        knowledge, _ = exact(tokens)
        prompt = knowledge.read(kind, made)
        assert prompt.tokens is None
        assert prompt.keys == []
        async with asyncio.timeout(20):
            while knowledge._waiting:  # noqa: ASYNC110 - a thread works
                await asyncio.sleep(0.01)
        assert threads
        assert threading.main_thread() not in threads
        if what == "tools":  # these are none: said all the same
            assert knowledge.unlike.total() == 1
        else:
            again = knowledge.read(kind, made)
            ids = tokens.tokens(kind, made)
            assert again.tokens == len(ids) // 4
            assert again.keys == block_keys(ids, BLOCK)
        knowledge.close()

    asyncio.run(run())


@pytest.mark.parametrize("messages", [1, 400])
def test_a_prompt_that_is_not_long_is_looked_at_at_once(tokens: PromptTokens, messages: int) -> None:
    knowledge, _ = exact(tokens)
    body = chat(*[{"role": "user", "content": "{" * 800 if messages == 1 else "x"}] * messages)
    tokens.tokens("chat", body)
    assert knowledge.read("chat", body).tokens is not None


def test_more_new_text_than_can_be_tokenized_is_left_for_later(tokens: PromptTokens) -> None:
    async def body() -> None:
        knowledge, _ = exact(tokens)
        for number in range(100):
            knowledge.read("completions", fields({"prompt": f"{number} " * 3000}))
        assert knowledge._waiting <= 32
        knowledge.close()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("chat", {"messages": [{"role": "user", "content": [*PARTS, None]}, {"role": "assistant", "content": None}]}),
        ("chat", {"messages": None}),
        ("chat", {}),
        ("completions", {"prompt": [[101, 2023], [102]]}),
        ("completions", {"prompt": []}),
        ("completions", {"prompt": ["a", 7]}),
        ("completions", {"prompt": "x", "cache_salt": 5}),
    ],
)
def test_what_no_tokens_are_made_of_is_remembered_by_its_text(
    tokens: PromptTokens, kind: Literal["chat", "completions"], body: dict[str, Any]
) -> None:
    knowledge, _ = exact(tokens)
    made = fields({**body, "metadata": "x"})
    if kind == "chat":
        made["messages"] = msgspec.Raw(bytes(made.get("messages", b"null")) + b" " * 600)

    async def ask() -> None:
        prompt = knowledge.read(kind, made)
        knowledge.sent(prompt, "prefill-0")
        assert set(knowledge.overlaps(prompt)) == ({"prefill-0"} if prompt.names else set())

    asyncio.run(ask())


def test_why_a_prompt_is_not_tokenized_is_said_in_few_words_that_hold_nothing_of_it(tokens: PromptTokens) -> None:
    """They stand in the open metrics, a series each."""
    knowledge, _ = exact(tokens)
    tokens._template = ChatTemplate("{{ messages[0].content + raise_exception(messages[0].content) }}", **NO_SPECIALS)
    for number in range(3):
        secret = f"secret-{number}"
        knowledge.read("chat", chat({"role": secret, "content": secret}))
        knowledge.read("chat", chat({"role": "user", "content": secret}))
        knowledge.read("chat", {"messages": msgspec.Raw(f'[{{"secret-{number}": '.encode())})
        knowledge.read("completions", fields({"prompt": "x" * ((2 << 20) + number)}))
        knowledge.read("completions", fields({"prompt": "x", "truncate_prompt_tokens": number + 7}))
    assert sorted(knowledge.unlike.values()) == [3] * 5
    assert "secret" not in str(knowledge.unlike)


def test_a_prompt_that_the_tokenizer_fails_on_is_counted(tokens: PromptTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_pieces: object) -> dict[str, bytes]:
        raise TypeError("secret")

    monkeypatch.setattr(tokens, "encode", fail)

    async def body() -> None:
        knowledge, _ = exact(tokens)
        knowledge.read("chat", chat(SYSTEM, {"role": "user", "content": "never sent before"}))
        async with asyncio.timeout(20):
            while knowledge._waiting:  # noqa: ASYNC110 - a thread works
                await asyncio.sleep(0.01)
        assert knowledge.unlike == {"tokenizing it fails: TypeError": 1}
        knowledge.close()

    asyncio.run(body())


def test_what_was_predicted_is_counted_once_the_worker_has_answered(tokens: PromptTokens) -> None:
    knowledge, index = exact(tokens)
    body = chat(SYSTEM, QUESTION)
    hold(index, "prefill-0", tokens, body)
    prompt = knowledge.read("chat", body)
    overlap = knowledge.overlaps(prompt)["prefill-0"]
    assert knowledge.predicted_tokens["prefill-0"] == 0
    knowledge.answered(prompt, "prefill-0")
    knowledge.answered(prompt, "prefill-1")
    assert knowledge.predicted_tokens == {"prefill-0": overlap}
    assert knowledge.predicted_prompts == {"prefill-0": 1}
    knowledge.forget("prefill-0")
    assert knowledge.predicted_tokens == {}
