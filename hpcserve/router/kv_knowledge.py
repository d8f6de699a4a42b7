"""Who holds the KV of a prompt: by the engines' own events where they are believed, else by where prefixes went lately.

`read` a request, ask for `overlaps`, say where it is `sent` and when it is `answered`. None of these waits: new text is
tokenized in a thread for the conversation's next turn; until then its beginning counts. A long prompt is rendered there
as well, and counts as text unless it is sent again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Literal, Protocol

import msgspec

from hpcserve.router.kv_prompt import Kind, Known, Prompt, is_long, salt_of, text_of
from hpcserve.routing import TOKEN_BYTES, Key, KvIndex, PrefixMemory, UnlikeEngineError, block_keys

__all__ = ["KvKnowledge", "TokenSource"]

_MOST_WAITING = 32
"""Prompts whose new text waits to be tokenized; beyond it text is left for a later turn."""
_LONGEST_BYTES = 2 << 20
"""Of a request that waits for the thread: with the number above, at most 64 MiB are kept for it."""
_MOST_SEEN_KEYS = 100_000
"""Names of blocks that are kept with whole prompts: about 4 MB, some 270 prompts of 32 KiB."""
_BYTES_PER_TOKEN = 4.0
"""About four letters a token in English, until tokenized prompts or answers tell."""
_WEIGHT = 0.05


class TokenSource(Protocol):
    """Makes token ids; `tokens.PromptTokens`, which is loaded only where it is used."""

    def look(self, kind: Kind, fields: Mapping[str, msgspec.Raw]) -> Known:
        """What is known of a prompt without tokenizing anything. Raises UnlikeEngineError."""
        ...

    def encode(self, pieces: Iterable[str]) -> dict[str, bytes]:
        """Packed ids of pieces, in a thread."""
        ...

    def whole(self, kind: Kind, fields: Mapping[str, msgspec.Raw]) -> tuple[bytes, dict[str, bytes]]:
        """All packed ids of a prompt and those of its new pieces, in a thread. Raises UnlikeEngineError."""
        ...

    def learn(self, pieces: Mapping[str, bytes]) -> None:
        """Keep them."""
        ...


class KvKnowledge:
    """What the router knows. Owned by one loop."""

    def __init__(
        self, *, now_s: Callable[[], float], index: KvIndex | None = None, tokens: TokenSource | None = None
    ) -> None:
        """Without an index, or without a tokenizer, prefixes that went somewhere lately are all there is."""
        self.memory = PrefixMemory()
        self.index = index
        self.tokens = tokens
        self.without_cache: frozenset[str] = frozenset()
        """Workers that keep no prefixes: nothing is said of them."""
        self.some_are_silent = True
        """Whether there are workers that publish no events: of these only routes can be remembered."""
        self.doubted: Mapping[str, str] = {}
        """Workers whose events are not believed, each with the reason in words."""
        self.unlike: Counter[str] = Counter()
        """Prompts that are not made here as the engine makes them, by reason."""
        self.prompts: Counter[Literal["known", "beginning", "text"]] = Counter()
        """Prompts so far: all tokens were known at once, those of its beginning, or none."""
        self.predicted_tokens: Counter[str] = Counter()
        """By worker: hits that were predicted, of prompts whose first token is there."""
        self.predicted_prompts: Counter[str] = Counter()
        self.bytes_per_token = _BYTES_PER_TOKEN
        self._seen: dict[int, tuple[int, list[Key]]] = {}
        """Length and names of blocks of whole prompts, by text and all else that makes a prompt."""
        self._seen_keys = 0
        self._now_s = now_s
        self._thread: ThreadPoolExecutor | None = None
        self._waiting = 0

    @property
    def exact(self) -> bool:
        """Whether events and tokens are there to be used."""
        return self.index is not None and self.tokens is not None

    def read(self, kind: Kind, fields: Mapping[str, msgspec.Raw]) -> Prompt:
        """What can be said of a request's prompt now."""
        text, root = text_of(kind, fields)
        prompt = Prompt(text_bytes=len(text))
        if self.index is not None and self.tokens is not None:
            same = hash((text, root, self.index.block_size))
            seen = self._seen.get(same)
            if seen is not None:
                prompt.tokens, prompt.keys = seen
                self.saw_length(prompt, prompt.tokens)
            elif is_long(kind, fields):
                self._name_later(prompt, kind, fields, self.index, self.tokens, same=same)
            else:
                self._name_tokens(prompt, kind, fields, self.index, self.tokens)
                if prompt.tokens is not None:
                    self._remember_prompt(same, prompt.tokens, prompt.keys)
        if prompt.tokens is None or self.some_are_silent or self.doubted:
            prompt.names = self.memory.names(text, root)
        self.prompts["known" if prompt.tokens is not None else "beginning" if prompt.keys else "text"] += 1
        return prompt

    def _name_tokens(
        self, prompt: Prompt, kind: Kind, fields: Mapping[str, msgspec.Raw], index: KvIndex, tokens: TokenSource
    ) -> None:
        try:
            known = tokens.look(kind, fields)
        except UnlikeEngineError as error:
            self.unlike[str(error)] += 1
            return
        if known.unknown:
            self._in_thread(lambda: partial(tokens.learn, tokens.encode(known.unknown)))
        else:
            prompt.tokens = len(known.tokens) // TOKEN_BYTES
            self.saw_length(prompt, prompt.tokens)
        if index.block_size is not None:
            prompt.keys = block_keys(known.tokens, index.block_size, salt=salt_of(fields))

    def _name_later(
        self,
        prompt: Prompt,
        kind: Kind,
        fields: Mapping[str, msgspec.Raw],
        index: KvIndex,
        tokens: TokenSource,
        *,
        same: int,
    ) -> None:
        """Name its blocks in the thread, for when the same prompt is sent again, and its pieces for other prompts."""
        if sum(len(memoryview(raw)) for raw in fields.values()) > _LONGEST_BYTES:
            self.unlike["the request is too long"] += 1
            return
        block_size = index.block_size

        def work() -> Callable[[], None]:
            ids, new = tokens.whole(kind, fields)
            length = len(ids) // TOKEN_BYTES
            keys = [] if block_size is None else block_keys(ids, block_size, salt=salt_of(fields))

            def keep() -> None:
                tokens.learn(new)
                self.saw_length(prompt, length)
                if same not in self._seen:
                    self._remember_prompt(same, length, keys)

            return keep

        self._in_thread(work)

    def _remember_prompt(self, same: int, tokens: int, keys: list[Key]) -> None:
        """A prompt that is sent again (several samples, a retry) is not rendered again."""
        size = len(keys) + 1  # a prompt without a full block takes room as well
        if size + self._seen_keys > _MOST_SEEN_KEYS:
            self._seen.clear()
            self._seen_keys = 0
        self._seen[same] = (tokens, keys)
        self._seen_keys += size

    def overlaps(self, prompt: Prompt) -> Mapping[str, int]:
        """Prompt tokens whose KV each worker holds, as far as that is known; workers that hold none are left out.

        A worker's own events go first. Where it holds all that is tokenized of a prompt, and what it does not tell of,
        the memory of what was sent to it says more.
        """
        guessed = {
            worker: int(size / self.bytes_per_token)
            for worker, size in self.memory.find(prompt.names, now_s=self._now_s()).items()
        }
        index = self.index
        if index is None or index.block_size is None or self.tokens is None:
            return guessed
        size = index.block_size
        most = None if prompt.tokens is None else (prompt.tokens - 1) // size  # the last token is always computed
        found = {}
        for worker, blocks in index.find(prompt.keys).items():
            if worker not in self.doubted:
                found[worker] = (blocks if most is None else min(blocks, most)) * size
        prompt.predicted = found
        known = len(prompt.keys) * size
        merged = dict(found)
        for worker, tokens in guessed.items():
            if most is not None and tokens > most * size:
                tokens = most * size  # noqa: PLW2901 - a guess by bytes, which cannot be more than there is
            told = index.knows(worker) and worker not in self.doubted
            if not told or (prompt.tokens is None and found.get(worker, 0) >= known):
                merged[worker] = max(tokens, found.get(worker, 0))
        return merged

    def sent(self, prompt: Prompt, worker: str) -> None:
        """A leg with this prompt goes to this worker."""
        if worker not in self.without_cache:
            self.memory.remember(prompt.names, worker, now_s=self._now_s())

    def answered(self, prompt: Prompt, worker: str) -> None:
        """The first token of that leg is there: its prompt went through the worker's prefix cache."""
        predicted = prompt.predicted.get(worker)
        if predicted:
            self.predicted_tokens[worker] += predicted
            self.predicted_prompts[worker] += 1

    def saw_length(self, prompt: Prompt, tokens: int) -> None:
        """Its length came out: learn how many bytes a token has."""
        if tokens > 0 and prompt.text_bytes:
            self.bytes_per_token += _WEIGHT * (prompt.text_bytes / tokens - self.bytes_per_token)

    def forget(self, worker: str) -> None:
        """This worker was started anew, or is gone; its entries in the index are dropped by whoever follows it."""
        self.memory.forget(worker)
        del self.predicted_tokens[worker]
        del self.predicted_prompts[worker]

    def close(self) -> None:
        """End the thread."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _in_thread(self, work: Callable[[], Callable[[], None]]) -> None:
        """Do work in the thread, and on the loop what it returns; nothing where too much waits already."""
        if self._waiting >= _MOST_WAITING:
            return
        self._waiting += 1
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokens")
        loop = asyncio.get_running_loop()

        def ended(done: Future[Callable[[], None]]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._take, done)

        self._thread.submit(work).add_done_callback(ended)

    def _take(self, done: Future[Callable[[], None]]) -> None:
        self._waiting -= 1
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            done.result()()
        elif isinstance(error, UnlikeEngineError):
            self.unlike[str(error)] += 1
        else:  # its words may hold a prompt
            self.unlike[f"tokenizing it fails: {type(error).__name__}"] += 1
