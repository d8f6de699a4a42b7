"""Proves that a worker tells of its KV: a prompt that nobody has is sent twice, and must show in three places."""

import asyncio
import secrets

import msgspec

from hpcserve.engines import EngineCounters
from hpcserve.nouns import Endpoint
from hpcserve.router.ask import AskError, ask
from hpcserve.router.counters import CounterReader
from hpcserve.router.kv_prompt import Kind
from hpcserve.router.pool import Pools
from hpcserve.router.tokens import PromptTokens
from hpcserve.routing import KvIndex, UnlikeEngineError, block_keys, packed_tokens

__all__ = ["KvProbe"]

_BLOCKS = 8
_USUAL_BLOCK = 32
"""Where neither the index nor a handoff says it: eight of these are whole blocks of any usual size."""
_LOWEST_ID, _IDS = 300, 200
"""Token ids 300 to 499: plain text in any vocabulary, above the bytes and the special tokens that stand first."""
_TOLD_WITHIN_S = 10.0
_ASKED_S = 0.05
_COUNTED_WITHIN_S = 12.0
_COUNTERS_ASKED_S = 0.5
_TIMEOUT_S = 60.0
_SLOW_S = 0.2
"""Two prefills that both take less cannot be told apart from what else the engine does."""
_OK = 200
_SHOWN = 200

_TEXTS: tuple[tuple[Kind, dict[str, object]], ...] = (
    (
        "completions",
        {"prompt": "Three rivers: the Rhine, the Nile\n\n  and 12 others. \u00dcber \u4f60\u597d \U0001f30a"},
    ),
    ("chat", {"messages": [{"role": "user", "content": " Name three\trivers.\n"}]}),
    (
        "chat",
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B "}]},
                {"role": "assistant", "content": "C\n"},
                {"role": "user", "content": ""},
            ]
        },
    ),
)
"""Requests whose token ids are compared with the engine's own."""


class KvProbe:
    """Asks workers with requests of its own."""

    def __init__(self, pools: Pools, counters: CounterReader, index: KvIndex, *, key: str) -> None:
        """`key`: the engines' own API key."""
        self._pools = pools
        self._counters = counters
        self._index = index
        self._key = key

    async def of(self, worker: Endpoint) -> str:
        """Why its events cannot be believed; empty where they can. Raises AskError where it does not answer."""
        reason = ""
        for _ in range(2):  # one that was only slow the second time is asked once more
            reason, slow = await self._once(worker)
            if not slow:
                break
        return reason

    async def _once(self, worker: Endpoint) -> tuple[str, bool]:
        handoff = worker.handoff
        size = self._index.block_size or (handoff.block_size if handoff is not None else _USUAL_BLOCK)
        blocks = min(_BLOCKS, ((worker.max_model_len or 1 << 20) - 2) // size)
        if blocks < 1:
            return "", False
        prompt = [_LOWEST_ID + secrets.randbelow(_IDS) for _ in range(blocks * size + 1)]
        first_s = await self._complete(worker, prompt)
        if not await self._is_told(worker, prompt, blocks, size):
            return "its events do not tell of a prompt that it was sent", False
        before = await self._counters.of(worker)
        second_s = await self._complete(worker, prompt)
        wanted = blocks * size
        hits = await self._hits_since(worker, before, wanted)
        if hits < wanted:
            return f"a prompt sent twice was found in its cache with {hits} of {wanted} tokens", False
        slow = first_s >= _SLOW_S and second_s >= first_s
        return (f"a prompt sent twice took {first_s:.2f} s and then {second_s:.2f} s" if slow else ""), slow

    async def _is_told(self, worker: Endpoint, prompt: list[int], blocks: int, size: int) -> bool:
        """Whether the index has the prompt soon."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _TOLD_WITHIN_S
        while loop.time() < until_s:
            keys = block_keys(packed_tokens(prompt), self._index.block_size or size)
            if self._index.find(keys).get(worker.id, 0) >= min(blocks, len(keys)):
                return True
            await asyncio.sleep(_ASKED_S)
        return False

    async def _hits_since(self, worker: Endpoint, before: EngineCounters, wanted: int) -> int:
        """Tokens found in its cache since then; an idle engine adds up its counters some seconds late."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _COUNTED_WITHIN_S
        while True:
            hits = (await self._counters.of(worker)).local_hit_tokens - before.local_hit_tokens
            if hits >= wanted or loop.time() >= until_s:
                return hits
            await asyncio.sleep(_COUNTERS_ASKED_S)

    async def _complete(self, worker: Endpoint, prompt: list[int]) -> float:
        """Seconds that one token took."""
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        body = msgspec.json.encode({"model": worker.model, "prompt": prompt, "max_tokens": 1, "temperature": 0})
        await self._post(worker, "/v1/completions", body)
        return loop.time() - start_s

    async def tokens_differ(self, worker: Endpoint, tokens: PromptTokens) -> str:
        """Where the token ids made here differ from the worker's own; empty where they do not. Raises AskError."""
        for kind, request in _TEXTS:
            body = msgspec.json.encode({"model": worker.model, **request})
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
            try:
                ours = tokens.tokens(kind, fields)
            except UnlikeEngineError:  # a model without a chat template: nothing is claimed of its chats
                continue
            answer = await self._post(worker, "/tokenize", body)
            try:
                theirs = packed_tokens(msgspec.json.decode(answer, type=_Tokenized).tokens)
            except (msgspec.DecodeError, OverflowError):
                return "the engine's /tokenize cannot be read"
            if ours != theirs:
                return f"of a {kind} request other token ids are made than the engine's"
        return ""

    async def _post(self, worker: Endpoint, path: str, body: bytes) -> bytes:
        status, answer = await ask(self._pools, worker, path, body=body, key=self._key, timeout_s=_TIMEOUT_S)
        if status != _OK:
            raise AskError(f"it answered {path} with {status}: {answer[:_SHOWN].decode(errors='replace')}")
        return answer


class _Tokenized(msgspec.Struct):
    tokens: list[int]
