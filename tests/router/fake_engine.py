"""A fake engine with vLLM's handoff, on a real socket.

Tokens follow from the prompt alone, so a lost or foreign KV shows: a decode leg answers from what its
`kv_transfer_params` point to, not from the prompt that it was sent.
"""

import asyncio
import hashlib
import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hpcserve.nouns import Endpoint, Handoff, Role
from tests import synthetic

ENGINE_KEY = "sk-engine"
MODEL = "tiny"


@dataclass(kw_only=True)
class Call:
    """One request as an engine got it."""

    worker: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes
    closed_early: bool = False

    @property
    def leg(self) -> str:
        params = self.body.get("kv_transfer_params")
        return "whole" if not params else "prefill" if params.get("do_remote_decode") else "decode"


Behaviour = Callable[[Call, asyncio.StreamWriter], Awaitable[bool]]
"""Answers a call itself and says True, or leaves it to the default."""


def tokens_of(prompt: str, count: int) -> list[str]:
    return [f" {hashlib.sha256(f'{prompt}{place}'.encode()).hexdigest()[:6]}" for place in range(count)]


def prompt_of(body: dict[str, Any]) -> str:
    return json.dumps(body.get("prompt", body.get("messages")), sort_keys=True)


KV: dict[str, str] = {}
"""What prefill workers hold: remote request id -> prompt."""
_IDS = itertools.count()


class FakeEngine:
    def __init__(self, role: Role, number: int = 0, **facts: Any) -> None:
        self.id = f"{role}-{number}"
        self.role = role
        self.calls: list[Call] = []
        self.behave: Behaviour | None = None
        self.facts = facts
        self.generation = "g1"
        self.corrupt = False
        self.counts_transfers = True
        self.transfers = 0
        self.waiting = 0
        self.running = 0
        self.generated = 0
        self.healthy = True
        self.silent_s = 0.0
        self.open = 0
        self.accepted = 0
        self.looks = 0
        """How often its counters were read."""
        self.checks = 0
        """How often its `/health` was answered."""
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def endpoint(self) -> Endpoint:
        handoff = synthetic.handoff(**{key: value for key, value in self.facts.items() if key in Handoff.model_fields})
        return Endpoint(
            id=self.id,
            generation=self.generation,
            role=self.role,
            url=f"http://127.0.0.1:{self.port}",
            node="node01",
            pid=1,
            model=self.facts.get("model", MODEL),
            engine="vllm",
            engine_version="0.32.0",
            handoff=None if self.role == Role.AGGREGATED else handoff,
            max_model_len=self.facts.get("max_model_len", 2048),
            simulated=self.facts.get("simulated", False),
            draining=self.facts.get("draining", False),
        )

    def legs(self) -> list[str]:
        return [call.leg for call in self.calls if call.path.startswith("/v1/")]

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open += 1
        self.accepted += 1
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return False
        lines = head.decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        raw = await reader.readexactly(int(headers.get("content-length", "0")))
        if method == "GET":
            await asyncio.sleep(self.silent_s)
            text = self._metrics() if path == "/metrics" else "{}"
            await send(writer, 200 if self.healthy else 500, text.encode())
            self.checks += path == "/health"
            return True
        call = Call(worker=self.id, path=path, headers=headers, body=json.loads(raw), raw=raw)
        self.calls.append(call)
        gone = asyncio.create_task(reader.read(1))
        answer = asyncio.create_task(self._answer(call, writer))
        try:
            done, _ = await asyncio.wait((gone, answer), return_when=asyncio.FIRST_COMPLETED)
            if answer not in done:
                call.closed_early = True
                return False
            return answer.result()
        finally:
            for task in (gone, answer):
                task.cancel()
            await asyncio.gather(gone, answer, return_exceptions=True)

    async def _answer(self, call: Call, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is kept."""
        if self.behave is not None and await self.behave(call, writer):
            return not writer.is_closing()
        if call.headers.get("authorization") != f"bearer {ENGINE_KEY}":
            await send(writer, 401, b'{"error":"no"}')
        elif call.leg == "prefill":
            await send(writer, 200, json.dumps(prefill_answer(call)).encode())
        else:
            await self.complete(call, writer)
        return True

    def answer_tokens(self, call: Call) -> list[str]:
        """What it says, from the KV that it was pointed to where there is one."""
        prompt = prompt_of(call.body)
        if call.leg == "decode":
            self.transfers += self.counts_transfers
            prompt = KV.pop(call.body["kv_transfer_params"]["remote_request_id"], "nothing")
        if self.corrupt and call.leg == "decode":
            prompt += "?"
        count = call.body.get("max_tokens") or call.body.get("max_completion_tokens") or 4
        self.generated += count
        return tokens_of(prompt, count)

    async def complete(self, call: Call, writer: asyncio.StreamWriter, *, every_s: float = 0.0) -> None:
        tokens = self.answer_tokens(call)
        chat = call.path.endswith("/chat/completions")
        if not call.body.get("stream"):
            await send(writer, 200, json.dumps(whole_answer(tokens, chat=chat)).encode())
            return
        begin_stream(writer)
        for event in events_of(tokens, chat=chat):
            writer.write(chunk(event))
            await writer.drain()
            if every_s:
                await asyncio.sleep(every_s)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    def _metrics(self) -> str:
        self.looks += 1
        return (
            f"vllm:nixl_xfer_time_seconds_count {self.transfers}\nvllm:nixl_xfer_time_seconds_sum 0.1\n"
            f"vllm:nixl_bytes_transferred_sum {self.transfers * 4096}\n"
            f"vllm:prompt_tokens_total 1\nvllm:generation_tokens_total {self.generated}\n"
            f"vllm:num_requests_running {self.running}\nvllm:num_requests_waiting {self.waiting}\n"
        )


def prefill_answer(call: Call, **changes: Any) -> dict[str, Any]:
    remote = f"r{next(_IDS)}"
    KV[remote] = prompt_of(call.body)
    params = {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [[4, 5]],
        "remote_engine_id": "e",
        "remote_request_id": remote,
        "remote_host": "10.0.0.1",
        "remote_port": 5600,
        "odd": "é\\u0041 ",
        **changes,
    }
    return {"id": "p", "choices": [{"index": 0, "text": "x"}], "kv_transfer_params": params}


def whole_answer(tokens: list[str], *, chat: bool) -> dict[str, Any]:
    text = "".join(tokens)
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    choice |= {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    choice["logprobs"] = {
        "tokens": tokens,
        "token_logprobs": [-1.0] * len(tokens),
        "top_logprobs": [{token: -1.0, "other": -2.0} for token in tokens],
    }
    return {"id": "c", "object": "text_completion", "choices": [choice], "usage": {"completion_tokens": len(tokens)}}


def events_of(tokens: list[str], *, chat: bool) -> list[bytes]:
    found = []
    if chat:
        found.append(event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}))
    for token in tokens:
        choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        choice |= {"delta": {"content": token}} if chat else {"text": token}
        found.append(event({"choices": [choice]}))
    found.append(event({"choices": [], "usage": {"completion_tokens": len(tokens)}}))
    found.append(b"data: [DONE]\n\n")
    return found


def event(content: Any) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def begin_stream(writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    )


async def send(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
