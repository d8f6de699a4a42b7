"""A fake engine with vLLM's handoff and a rig that runs the router's sessions before such engines, on real sockets.

Tokens follow from the prompt alone, so a lost or foreign KV shows: a decode leg answers from what its
`kv_transfer_params` point to, not from the prompt that it was sent.
"""

import asyncio
import hashlib
import itertools
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, Self

from hpcserve.engines import read_counters
from hpcserve.nouns import Endpoint, Handoff, PathCost, Plan, Role, RouterState, Workload
from hpcserve.router.arrivals import Arrivals
from hpcserve.router.counters import CounterReader
from hpcserve.router.desk import Desk, Limits
from hpcserve.router.keys import KeyRing
from hpcserve.router.ledger import Finding
from hpcserve.router.log import Log
from hpcserve.router.metrics import Metrics
from hpcserve.router.pool import Pools
from hpcserve.router.prove import Prover
from hpcserve.router.roster import Candidate, Roster
from hpcserve.router.session import Session
from tests import synthetic

KEY = "sk-job"
ENGINE_KEY = "sk-engine"
MODEL = "tiny"
WORKLOAD = Workload(input_tokens=512, output_tokens=64)
Header = dict[str, str]


@dataclass(kw_only=True)
class Call:
    """One request as an engine got it."""

    worker: str
    path: str
    headers: Header
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


@dataclass(kw_only=True)
class Answer:
    """A response as a client got it. `whole`: it ended the way its framing says."""

    status: int
    headers: Header
    body: bytes
    whole: bool
    interim: list[int] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return str(self.json["choices"][0].get("text") or self.json["choices"][0]["message"]["content"])

    @property
    def events(self) -> list[bytes]:
        return [each for each in self.body.split(b"\n\n") if each]

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = self.json["error"]
        assert set(found) == {"message", "type", "param", "code"}
        return found


class Connection:
    """A client's connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def post(self, path: str, body: Any, **headers: str) -> None:
        await self.write(request("POST", path, body, **headers))

    async def answer(self) -> Answer:
        interim = []
        while True:
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            status = int(lines[0].split(" ")[1])
            if status >= 200:
                break
            interim.append(status)
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        body, whole = b"", True
        if headers.get("transfer-encoding") == "chunked":
            while True:
                try:
                    size = int(await self.reader.readuntil(b"\r\n"), 16)
                    body += (await self.reader.readexactly(size + 2))[:-2]
                except asyncio.IncompleteReadError:
                    whole = False
                    break
                if size == 0:
                    break
        elif "content-length" in headers:
            body = await self.reader.readexactly(int(headers["content-length"]))
        else:
            body = await self.reader.read()
        return Answer(status=status, headers=headers, body=body, whole=whole, interim=interim)

    async def is_closed(self) -> bool:
        return await self.reader.read(1) == b""

    def close(self) -> None:
        self.writer.close()


def request(method: str, path: str, body: Any = None, **headers: str) -> bytes:
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"Host": "router", "Authorization": f"Bearer {KEY}"}
    if body is not None:
        named |= {"Content-Type": "application/json", "Content-Length": str(len(raw))}
    named |= {key.replace("_", "-"): value for key, value in headers.items()}
    lines = "".join(f"{key}: {value}\r\n" for key, value in named.items() if value)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + raw


class Seat(Protocol):
    """A worker as far as a plan is concerned."""

    id: str
    role: Role


def plan_of(engines: Sequence[Seat], transfer_ms: dict[tuple[str, str], float] | None = None) -> Plan:
    plan = synthetic.plan()
    workers = tuple(plan.workers[0].model_copy(update={"id": engine.id, "role": engine.role}) for engine in engines)
    path = plan.paths[0]
    paths: tuple[PathCost, ...] = tuple(
        path.model_copy(
            update={
                "prefill": prefill.id,
                "decode": decode.id,
                "transfer_ms": (transfer_ms or {}).get((prefill.id, decode.id), 10.0),
            }
        )
        for prefill in engines
        for decode in engines
        if (prefill.role, decode.role) == (Role.PREFILL, Role.DECODE)
    )
    return plan.model_copy(
        update={"workers": workers, "paths": paths, "mode": "disaggregated" if paths else "aggregated"}
    )


class Rig:
    """Fake engines and a router's sessions before them. All pairs count as proved unless `proved` is False."""

    def __init__(
        self,
        *engines: FakeEngine,
        limits: Limits | None = None,
        proved: bool = True,
        transfer_ms: dict[tuple[str, str], float] | None = None,
        sweep_s: float = 0.02,
    ) -> None:
        self.engines = list(engines) or [FakeEngine(Role.PREFILL), FakeEngine(Role.DECODE)]
        self._limits = limits or Limits()
        self._proved = proved
        self._transfer_ms = transfer_ms
        self._sweep_s = sweep_s
        self.sessions: set[Session] = set()
        self._stack = AsyncExitStack()
        self._connections: list[Connection] = []

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for engine in self.engines:
            await engine.start()
            self._stack.push_async_callback(engine.stop)
        self.pools = Pools(loop=loop)
        self.counters = CounterReader(self.pools, read_counters)
        self.prover = Prover(
            self.pools,
            self.counters,
            key=ENGINE_KEY,
            handoff_s=self._limits.handoff_s,
            leg_timeout_s=5,
            counters_timeout_s=0.5,
        )
        arrivals = Arrivals(self.counters, apart_s=0.02)
        self._stack.push_async_callback(arrivals.close)
        self.desk = Desk(
            roster=Roster(plan_of(self.engines, self._transfer_ms), model=MODEL, workload=WORKLOAD),
            pools=self.pools,
            metrics=Metrics(),
            log=Log(open_null()),
            limits=self._limits,
            now_s=loop.time,
            keys=KeyRing(KEY.encode()),
            engine_key=ENGINE_KEY.encode(),
            arrivals=arrivals,
        )
        self.see()
        if self._proved:
            self.prove_all()
        server = await loop.create_server(lambda: Session(self.desk, self.sessions), "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        sweep = loop.create_task(self._sweep())

        async def end() -> None:
            sweep.cancel()
            server.close()
            for connection in self._connections:
                connection.close()
            for session in tuple(self.sessions):
                session.close()
            self.pools.close()
            await asyncio.sleep(0.02)

        self._stack.push_async_callback(end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def see(self) -> None:
        """What discovery would do when engines came or changed."""
        endpoints = tuple(engine.endpoint for engine in self.engines)
        self.desk.roster.take(endpoints)
        self.pools.keep_only(endpoints)

    def prove_all(self) -> None:
        for candidate in list(self.desk.roster.candidates(0.0)):
            self.desk.roster.record(candidate, Finding(outcome="proved", reason="as told"), now_s=0.0)

    async def prove_next(self) -> tuple[Candidate, Finding]:
        candidate = next(iter(self.desk.roster.candidates(self.desk.now_s())))
        finding = await self.prover.prove(candidate)
        self.desk.roster.record(candidate, finding, now_s=self.desk.now_s())
        return candidate, finding

    def state(self) -> RouterState:
        return self.desk.roster.state(ready_since_utc=None)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_s)
            self.desk.turns.seen(self.desk.now_s())
            for timed in tuple(self.desk.timed):
                timed.check_time(self.desk.now_s())
            for session in tuple(self.sessions):
                session.check_time(self.desk.now_s())

    async def connect(self) -> Connection:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        self._connections.append(connection)
        return connection

    async def ask(self, path: str, body: Any = None, **headers: str) -> Answer:
        """One request on a connection of its own."""
        connection = await self.connect()
        await connection.write(request("GET" if body is None else "POST", path, body, **headers))
        answer = await asyncio.wait_for(connection.answer(), 10)
        connection.close()
        return answer

    async def settle(self) -> None:
        """Until nothing is under way; the counts must then be back to nothing."""
        for _ in range(200):
            if not self.desk.metrics.in_flight and not any(load.in_flight for load in self.desk.roster.loads.values()):
                break
            await asyncio.sleep(0.01)
        assert self.desk.metrics.in_flight == 0
        for name, load in self.desk.roster.loads.items():
            assert (load.in_flight, load.transfers) == (0, 0), name
        assert not self.desk.timed


def open_null() -> int:
    return _NULL.fileno()


_NULL = open("/dev/null", "wb")  # noqa: PTH123, SIM115 - open as long as the tests run
