"""One request for text: from the body that was asked to the answer or the stream, as vLLM sends it."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from uuid import uuid4

from hpcserve.simengine import answers
from hpcserve.simengine.bodies import Asked
from hpcserve.simengine.engine import Engine
from hpcserve.simengine.http import Reply, answer_json
from hpcserve.simengine.pull import BadHandoffError, Pull, read_handoff
from hpcserve.simengine.request import Generation, Put
from hpcserve.simengine.tokens import text_of

__all__ = ["answer"]


@dataclass(slots=True, kw_only=True)
class _Choice:
    """One of the answers of a request."""

    generation: Generation
    echo: str
    finish: str = ""
    tokens: list[int] = field(default_factory=list)
    text: str = ""

    def take(self, put: Put) -> str:
        """Note a put; returns the text it adds."""
        text = "" if put.token is None else text_of(put.token)
        if not self.tokens:
            text = self.echo + text
        if put.token is not None:
            self.tokens.append(put.token)
        if put.finish is not None:
            self.finish = put.finish
        self.text += text
        return text


async def answer(engine: Engine, asked: Asked, headers: Mapping[str, str], reply: Reply, fingerprint: str) -> None:
    """Generate and send; what still runs when the client goes away is aborted."""
    name = ("chatcmpl-" if asked.chat else "cmpl-") + (headers.get("x-request-id") or uuid4().hex[:16])
    shape = answers.Shape(
        id=name,
        created=int(time.time()),
        model=engine.settings.served_name,
        fingerprint=fingerprint,
        chat=asked.chat,
    )
    if engine.dead is not None:
        answer_json(reply, HTTPStatus.INTERNAL_SERVER_ERROR, answers.engine_dead())
        return
    try:
        pull = read_handoff(asked.transfer or {}) if engine.settings.transfer is not None else None
    except BadHandoffError as error:
        answer_json(reply, HTTPStatus.INTERNAL_SERVER_ERROR, answers.engine_dead())
        engine.break_down(str(error))
        return
    puts: asyncio.Queue[Put] = asyncio.Queue()
    choices = _choices(asked, name, pull, puts)
    for choice in choices:
        engine.add(choice.generation)
    answering = _Answering(engine=engine, asked=asked, shape=shape, choices=choices, puts=puts, reply=reply)
    try:
        await (answering.stream() if asked.stream else answering.whole())
    finally:
        for choice in choices:
            engine.abort(choice.generation)


def _choices(asked: Asked, name: str, pull: Pull | None, puts: asyncio.Queue[Put]) -> list[_Choice]:
    choices: list[_Choice] = []
    now_s = asyncio.get_running_loop().time()
    for number, prompt in enumerate(asked.prompts):
        for sample in range(asked.samples):
            # The engine's own name of a request: prompt number for completions, then a random part (entrypoints).
            own = f"{name}-{uuid4().hex[:8]}" if asked.chat else f"{name}-{number}-{uuid4().hex[:8]}"
            generation = Generation(
                id=own if sample == 0 else f"{sample}_{own}",
                answer=len(choices),
                puts=puts,
                prompt=prompt,
                max_tokens=asked.max_tokens[number],
                min_tokens=asked.min_tokens,
                ignore_eos=asked.ignore_eos,
                salt=asked.salt,
                sample=sample,
                pull=pull,
                keep_for_remote=bool((asked.transfer or {}).get("do_remote_decode")),
                arrived_s=now_s,
            )
            choices.append(_Choice(generation=generation, echo=asked.echoes[number]))
    return choices


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answering:
    """A request that the engine works on, and where its answer goes."""

    engine: Engine
    asked: Asked
    shape: answers.Shape
    choices: list[_Choice]
    puts: asyncio.Queue[Put]
    reply: Reply

    async def whole(self) -> None:
        """Send one complete answer."""
        open_choices = len(self.choices)
        while open_choices:
            put = await self.puts.get()
            if put.finish == "error":
                answer_json(self.reply, HTTPStatus.INTERNAL_SERVER_ERROR, self._failure())
                return
            self.choices[put.answer].take(put)
            open_choices -= put.finish is not None
        done = [self._finished(index, choice) for index, choice in enumerate(self.choices)]
        kept = (self.engine.handoff_params(choice.generation) for choice in self.choices)
        transfer = next((params for params in kept if params is not None), None)
        answer_json(self.reply, HTTPStatus.OK, self.shape.whole(done, self._usage(), transfer))

    async def stream(self) -> None:
        """Send events as tokens come; a failure is an event too, for the head of the answer has long been sent."""
        self.reply.begin()
        if self.asked.chat:
            for index in range(len(self.choices)):
                self._event(self.shape.role_chunk(index))
        open_choices = len(self.choices)
        while open_choices:
            put = await self.puts.get()
            if put.finish == "error":
                # Spaced as json.dumps does by itself: vLLM writes this event elsewhere than the others.
                self.reply.event(json.dumps(self._failure()).encode())
                break
            open_choices -= put.finish is not None
            self._send(self.choices[put.answer], put)
        if not open_choices and self.asked.include_usage:
            self._event(self.shape.usage_chunk(self._usage()))
        self.reply.event(b"[DONE]")
        self.reply.end()

    def _send(self, choice: _Choice, put: Put) -> None:
        first = not choice.tokens
        offset = len(choice.text)
        text = choice.take(put)
        tokens = [] if put.token is None else [put.token]
        chunk = self.shape.token_chunk(
            index=put.answer,
            text=text,
            logprobs=self._logprobs(tokens, offset),
            finish=put.finish,
            token_ids=tokens if self.asked.token_ids else None,
            prompt_ids=list(choice.generation.prompt) if self.asked.token_ids and first else None,
        )
        if self.asked.continuous_usage:
            chunk["usage"] = answers.usage(len(choice.generation.prompt), len(choice.tokens))
        if put.finish is not None and not self.asked.include_usage:
            chunk["system_fingerprint"] = self.shape.fingerprint
        self._event(chunk)

    def _finished(self, index: int, choice: _Choice) -> dict[str, Any]:
        return self.shape.choice(
            index=index,
            text=choice.text,
            logprobs=self._logprobs(choice.tokens, len(choice.echo)),
            finish=choice.finish,
            token_ids=choice.tokens if self.asked.token_ids else None,
            prompt_ids=list(choice.generation.prompt) if self.asked.token_ids else None,
        )

    def _failure(self) -> dict[str, Any]:
        return answers.INTERNAL_ERROR if self.engine.dead is None else answers.engine_dead()

    def _event(self, content: dict[str, Any]) -> None:
        self.reply.event(json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace"))

    def _logprobs(self, tokens: list[int], offset: int) -> dict[str, Any] | None:
        if self.asked.logprobs is None:
            return None
        if self.asked.chat:
            return answers.chat_logprobs(tokens, self.asked.logprobs)
        return answers.completion_logprobs(tokens, self.asked.logprobs, offset)

    def _usage(self) -> dict[str, Any]:
        prompt_tokens = sum(len(prompt) for prompt in self.asked.prompts)
        return answers.usage(prompt_tokens, sum(len(choice.tokens) for choice in self.choices))
