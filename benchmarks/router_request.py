"""What the router's own code takes for a request, without a network: bytecodes, calls and time.

    python -m benchmarks.router_request [--mode pd|plain] [--bytes 1024] [--batches 150] [--functions 20]

The router's real objects, everything on, between transports that answer at once: 16 clients ask together, as the loop
finds them under load. Bytecodes and calls do not depend on what else runs on the machine, but say nothing of what a
call of C takes: that shows in the CPU time, the least of many batches. `benchmarks.router` measures all of it.
"""

import argparse
import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

from benchmarks.router.machine import ENGINES, KEY, PREFILL_PORTS
from benchmarks.router.ours import make_job
from hpcserve.engines import adapter_for
from hpcserve.nouns import Endpoint, Plan, RouterState
from hpcserve.router.arrivals import Arrivals
from hpcserve.router.counters import CounterReader
from hpcserve.router.desk import Desk, Limits
from hpcserve.router.keys import KeyRing
from hpcserve.router.kv_knowledge import KvKnowledge
from hpcserve.router.log import Log
from hpcserve.router.main import handoff_limit_s
from hpcserve.router.metrics import Metrics
from hpcserve.router.pool import Pools
from hpcserve.router.roster import Roster
from hpcserve.router.session import Session
from hpcserve.router.slots import LinkSlots
from hpcserve.routing import preferences_of
from hpcserve.site import load_service
from hpcserve.wire import decode_record

_CLIENTS = 16
_PROMPTS = 128
"""Different prompts, which come again: the memory of prefixes is warm, as in `benchmarks.router`."""
_TRANSFER = (
    b',"kv_transfer_params":{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[%b]],'
    b'"remote_engine_id":"6f1f1b0e-8f3a-4a56-9d0a-000000000001","remote_request_id":"r1","remote_host":"127.0.0.1",'
    b'"remote_port":5600,"tp_size":1}'
) % b",".join(b"%d" % (1000 + block) for block in range(16))


class _Wires:
    """Stands for the event loop as `Pools` uses it, and for what it is connected to."""

    def __init__(self, answers: dict[int, bytes]) -> None:
        self._answers = answers
        self._turns: list[Callable[[], object]] = []
        self.asked: list[_Line] = []
        self.answered = 0
        self.time = float  # stands still, so that no connection is idle for too long

    def call_soon(self, turn: Callable[[], object]) -> None:
        self._turns.append(turn)

    def create_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(work)

    async def create_connection(
        self, factory: Callable[[], asyncio.Protocol], _host: str, port: int
    ) -> tuple["_Line", asyncio.Protocol]:
        protocol = factory()
        line = _Line(self, protocol, self._answers[port])
        protocol.connection_made(cast("asyncio.Transport", line))
        return line, protocol

    def run(self) -> None:
        """Until nobody has anything more to say."""
        while self._turns or self.asked:
            turns, self._turns = self._turns, []
            for turn in turns:
                turn()
            asked, self.asked = self.asked, []
            for line in asked:
                line.protocol.data_received(line.answer)


class _Line:
    """A transport: to an engine with its answer to whatever comes; to a client where that is empty."""

    def __init__(self, wires: _Wires, protocol: asyncio.Protocol, answer: bytes) -> None:
        self._wires = wires
        self.protocol = protocol
        self.answer = answer

    def write(self, _data: object) -> None:
        if self.answer:
            self._wires.asked.append(self)
        else:
            self._wires.answered += 1

    writelines = write

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return True

    def get_extra_info(self, _name: str) -> "_Line":
        return self

    def setsockopt(self, *_words: int) -> None:
        pass


def _response(length: int, extra: bytes = b"") -> bytes:
    text = b'{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"content":"%b"}}]%b}' % (
        b"x" * length,
        extra,
    )
    head = b"HTTP/1.1 200 OK\r\ndate: Mon, 30 Nov 2026 10:00:00 GMT\r\ncontent-length: %d\r\n" % len(text)
    return head + b"content-type: application/json\r\n\r\n" + text


def _request(number: int, size: int) -> bytes:
    text = (b"%03d some words of a prompt " % number) * (size // 28 + 1)
    body = (
        b'{"model":"m","messages":[{"role":"user","content":"%b"}],"max_tokens":16,"temperature":0,"stream":false}'
        % text[:size]
    )
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nAccept: application/json\r\n"
        b"User-Agent: load/1\r\nAuthorization: Bearer %b\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n"
    ) % (KEY.encode(), len(body)) + body


def _desk(job: Path, wires: _Wires) -> Desk:
    """As `hpcserve.router.main` makes it."""
    service = load_service((job / "service.yaml").read_text(), source="service.yaml", site=None)
    roster = Roster(
        decode_record(Plan, (job / "plan.json").read_bytes()), model=service.served_name, workload=service.workload
    )
    roster.take(tuple(decode_record(Endpoint, path.read_bytes()) for path in sorted((job / "endpoints").iterdir())))
    roster.take_over(decode_record(RouterState, (job / "router.state.json").read_bytes()).proofs)
    now_s = itertools.count(0.0, 1e-6).__next__  # each look at it a microsecond later, however long that takes
    pools = Pools(loop=cast("asyncio.AbstractEventLoop", wires))
    counters = CounterReader(pools, adapter_for(service.engine).read_counters)
    desk = Desk(
        roster=roster,
        pools=pools,
        metrics=Metrics(),
        log=Log(os.open(os.devnull, os.O_WRONLY)),
        limits=Limits(handoff_s=handoff_limit_s(service)),
        now_s=now_s,
        keys=KeyRing(KEY.encode()),
        engine_key=b"engine-key-0123456789",
        arrivals=Arrivals(counters, apart_s=1.0),
        preferences=preferences_of(service),
        slots=LinkSlots(roster.link_times, now_s=now_s, later=lambda *_: None),
    )
    desk.kv = KvKnowledge(now_s=now_s)
    return desk


async def _measure(mode: str, size: int, *, batches: int, functions: int) -> None:
    split = mode == "pd"
    with tempfile.TemporaryDirectory() as made:
        job = Path(made) / "job"
        make_job(job, disaggregated=split)
        whole = _response(80)
        prefill = _response(1, _TRANSFER) if split else whole
        answers = dict.fromkeys(ENGINES, whole) | dict.fromkeys(PREFILL_PORTS, prefill)
        wires = _Wires(answers)
        desk = _desk(job, wires)
    sessions = [Session(desk, set()) for _ in range(_CLIENTS)]
    for session in sessions:
        session.connection_made(cast("asyncio.Transport", _Line(wires, session, b"")))
    requests = [_request(number, size) for number in range(_PROMPTS)]

    async def batch() -> None:
        for first in range(0, _PROMPTS, _CLIENTS):
            wanted = wires.answered + _CLIENTS
            for session, request in zip(sessions, requests[first : first + _CLIENTS], strict=True):
                session.data_received(request)
            wires.run()
            while wires.answered < wanted:  # one more connection is made
                await asyncio.sleep(0)
                wires.run()

    for _ in range(5):
        await batch()
    codes, calls = await _counted(batch)
    times_s = [await _timed(batch) for _ in range(batches)]
    route = "disaggregated" if split else "aggregated"
    if {*desk.metrics.requests} != {(route, "ok")}:
        sys.exit(f"not all went well: {dict(desk.metrics.requests)}")
    print(
        f"{mode}, {size} bytes: {codes.total() / _PROMPTS:.0f} bytecodes, {calls.total() / _PROMPTS:.0f} calls"
        + (f", {min(times_s) / _PROMPTS * 1e6:.1f} us of CPU, the least of {batches}" if times_s else "")
    )
    for code, count in codes.most_common(functions):
        print(
            f"{count / _PROMPTS:8.1f} {calls[code] / _PROMPTS:6.1f}  {Path(code.co_filename).name} {code.co_qualname}"
        )


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    before = time.process_time()
    await work()
    return time.process_time() - before


async def _counted(work: Callable[[], Awaitable[None]]) -> tuple[Counter[CodeType], Counter[CodeType]]:
    """(bytecodes, calls) by function of the router."""
    codes: Counter[CodeType] = Counter()
    calls: Counter[CodeType] = Counter()

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        if event == "call":
            if Path(__file__).name in frame.f_code.co_filename:
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            calls[frame.f_code] += 1
        elif event == "opcode":
            codes[frame.f_code] += 1
        return trace

    sys.settrace(trace)
    try:
        await work()
    finally:
        sys.settrace(None)
    return codes, calls


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.router_request", description=__doc__)
    parser.add_argument("--mode", choices=("pd", "plain"), default="pd")
    parser.add_argument("--bytes", type=int, default=1024, help="of a prompt")
    parser.add_argument("--functions", type=int, default=0, help="how many are listed, by their bytecodes")
    parser.add_argument("--batches", type=int, default=150, help="that are timed, of 128 requests each; 0: none")
    words = parser.parse_args()
    asyncio.run(_measure(words.mode, words.bytes, batches=words.batches, functions=words.functions))


if __name__ == "__main__":
    main()
