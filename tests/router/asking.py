"""Clients for hours: each asks one question after another and compares every answer with what is right.

What is right follows from the prompt alone, by the simulated model's own arithmetic: KV of another request, or of a
block that was given away meanwhile, gives other tokens.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hpcserve.simengine.kv import extend, next_state, start_state, token_at
from hpcserve.simengine.tokens import EOS, VOCABULARY, encode, encode_chat, joined
from tests.router.client import Answer, Connection

_MODEL = "tiny"
_PREFIX_TOKENS = 40
_PREFIXES = 40
_LONG_SHARE = 0.02
"""Of requests that ask for many tokens: those that a dying worker leaves in the middle of their stream."""
_LONGEST_S = 120.0
"""No answer within this is a lost request: more than the router's own limits together."""
_MOST_TRIES = 60
_MOST_FAULTS = 100
"""Then there is nothing more to learn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    path: str
    body: dict[str, Any]
    right: str


def right_answer(prompt: Sequence[int], count: int, *, may_end: bool) -> str:
    """What every engine must say to this prompt."""
    state = start_state(_MODEL, extend(b"", prompt), 0)
    tokens: list[int] = []
    while len(tokens) < count:
        token = token_at(state, may_end=may_end)
        tokens.append(token)
        if token == EOS and may_end:
            break
        state = next_state(state, token)
    return joined(tokens)


def question(rng: random.Random, name: str) -> Question:
    """One that nobody asked before; some begin as others do."""
    long = rng.random() < _LONG_SHARE
    count = rng.randrange(60, 160) if long else rng.randrange(1, 7)
    body: dict[str, Any] = {
        "model": _MODEL,
        "max_tokens": count,
        "temperature": 0,
        "ignore_eos": long or rng.random() < 0.3,
        "stream": long or rng.random() < 0.5,
    }
    if rng.random() < 0.3:
        text = f"{name} {rng.randbytes(rng.randrange(8, 40)).hex()}"
        path, body["messages"] = "/v1/chat/completions", [{"role": "user", "content": text}]
        prompt = encode_chat([("user", text)])
    elif rng.random() < 0.3:
        path, body["prompt"] = "/v1/completions", f"{name} {rng.randbytes(rng.randrange(8, 40)).hex()}"
        prompt = encode(body["prompt"])
    else:
        prompt = [rng.randrange(3, VOCABULARY) for _ in range(rng.randrange(4, 80))]
        if rng.random() < 0.5:
            first = rng.randrange(_PREFIXES)
            prompt = [3 + (first * 1009 + place * 31) % 40_000 for place in range(_PREFIX_TOKENS)] + prompt
        path, body["prompt"] = "/v1/completions", prompt
    return Question(path=path, body=body, right=right_answer(prompt, count, may_end=not body["ignore_eos"]))


@dataclass(kw_only=True)
class Tally:
    """What became of all requests; `faults` are what must not be."""

    ends: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    """Answers of any kind, those of a request that was sent again included."""
    again: Counter[int] = field(default_factory=Counter)
    """Those that the client was told to send again, by status."""
    faults: list[str] = field(default_factory=list)

    @property
    def requests(self) -> int:
        return self.ends.total()


class Client:
    """One connection, opened anew where it broke. `lost`: whether a worker was lost after some time."""

    def __init__(self, port: int, *, name: str, tally: Tally, lost: Callable[[str, float], bool]) -> None:
        self._port = port
        self._name = name
        self._tally = tally
        self._lost = lost
        self._connection: Connection | None = None
        self._rng = random.Random(name)  # noqa: S311 - no secret

    async def run(self, *, until_s: float) -> None:
        """Ask until that time of the monotonic clock."""
        try:
            await self._run(until_s)
        finally:
            self.close()

    async def _run(self, until_s: float) -> None:
        count = 0
        while time.monotonic() < until_s and len(self._tally.faults) < _MOST_FAULTS:
            count += 1
            name = f"{self._name}-{count}"
            asked = question(self._rng, name)
            end = await self._settled(asked, name)
            self._tally.ends[end] += 1

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _settled(self, asked: Question, name: str) -> str:
        """Ask as clients do, again where the router says when; how it ended."""
        for _ in range(_MOST_TRIES):
            since_s = time.monotonic()
            try:
                answer = await asyncio.wait_for(self._ask(asked, name), _LONGEST_S)
            except (TimeoutError, OSError, asyncio.IncompleteReadError) as error:
                self.close()
                return self._fault("lost", name, f"{error!r} after {time.monotonic() - since_s:.1f} s")
            self._tally.attempts += 1
            if not answer.whole or answer.headers.get("connection") == "close":
                self.close()
            if answer.status in {429, 503} and "retry-after" in answer.headers:
                self._tally.again[answer.status] += 1
                await asyncio.sleep(float(answer.headers["retry-after"]))
                continue
            return self._judged(asked, answer, name, since_s)
        return self._fault("lost", name, f"refused {_MOST_TRIES} times")

    async def _ask(self, asked: Question, name: str) -> Answer:
        if self._connection is None:
            self._connection = Connection(*await asyncio.open_connection("127.0.0.1", self._port))
        await self._connection.post(asked.path, asked.body, X_Request_Id=name)
        return await self._connection.answer()

    def _judged(self, asked: Question, answer: Answer, name: str, since_s: float) -> str:
        if answer.status != 200:
            return self._fault("refused", name, f"{answer.status} {answer.body[:300]!r}")
        if answer.headers.get("x-request-id") != name:
            return self._fault("wrong", name, f"the answer to {answer.headers.get('x-request-id')}")
        said, broken = said_in(answer, chat="messages" in asked.body, stream=asked.body["stream"])
        if not broken and said == asked.right:
            return "right"
        if not broken or not asked.right.startswith(said):
            return self._fault("wrong", name, f"{answer.headers} said {said!r}, not {asked.right!r}")
        worker = answer.headers["x-hpcserve-route"].split(">")[-1]
        if not self._lost(worker, since_s):
            return self._fault("broken", name, f"by {worker}, which was not lost: {answer.body[-300:]!r}")
        return broken

    def _fault(self, kind: str, name: str, what: str) -> str:
        self._tally.faults.append(f"{time.strftime('%H:%M:%S')} {name}: {kind}: {what}")
        return kind


def said_in(answer: Answer, *, chat: bool, stream: bool) -> tuple[str, str]:
    """The text of an answer, and how it broke: empty where it is whole."""
    if not stream:
        (choice,) = answer.json["choices"]
        return str(choice["message"]["content"] if chat else choice["text"]), "" if answer.whole else "cut off"
    said, ended = "", False
    for event in answer.events:
        text = event.removeprefix(b"data: ")
        if text == b"[DONE]":
            ended = True
            continue
        try:
            content = json.loads(text)
        except ValueError:  # it broke within an event
            return said, "cut off"
        if "error" in content:
            return said, str(content["error"]["code"])
        for choice in content["choices"]:
            said += choice["delta"].get("content", "") if chat else choice["text"]
    return said, "" if ended and answer.whole else "cut off"
