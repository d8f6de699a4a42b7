"""The router's added time to first token: through it, against the same two legs sent by the client itself.

    python -m benchmarks.router_added_ttft [--rounds 400] [--prompt-bytes 1024] [--seconds 5]

Before simulated engines that take no time of their own, on this host, everything idle. Each round asks once through
the router, once straight (prefill leg, then decode leg, as the router would), and once at the decode worker alone; the
order of the three changes from round to round. Added = through - straight, paired by round. Then `--seconds` of load
from 8 connections give the requests per second of the router's CPU. Prints JSON: medians, quartiles, ranges, n.
"""

import argparse
import json
import os
import platform
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpcserve.engines.handoff import decode_body, prefill_body, read_answer, read_body
from hpcserve.nouns import Role
from tests.router.processes import ENGINE_KEY, HEADERS, Job, until

_WARM_ROUNDS = 30
_CONNECTIONS = 8


class Wire:
    """A kept-alive connection that asks and times, with as little of its own as Python allows."""

    def __init__(self, port: int, key: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"

    def ask(self, body: bytes) -> tuple[float, bytes]:
        """(seconds until the first `"text"` or the whole answer, the whole response)."""
        start_s = time.perf_counter()
        self._socket.sendall(
            f"{self._head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        data, first_s = b"", 0.0
        while not _is_whole(data):
            piece = self._socket.recv(65536)
            if not piece:
                raise ConnectionError(f"it closed after {data[-200:]!r}")
            data += piece
            if not first_s and b'"text"' in data:
                first_s = time.perf_counter() - start_s
        if not data.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(f"it answered {data[:300]!r}")
        return first_s or time.perf_counter() - start_s, data

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def _is_whole(data: bytes) -> bool:
    head, mark, body = data.partition(b"\r\n\r\n")
    if not mark:
        return False
    lowered = head.lower()
    if b"transfer-encoding: chunked" in lowered:
        return body.endswith(b"0\r\n\r\n")
    return len(body) >= int(lowered.partition(b"content-length:")[2].split(b"\r\n")[0])


def main() -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description="The router's added time to first token.")
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--prompt-bytes", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=5.0)
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        job = Job(Path(directory))
        try:
            result = _measure(job, rounds=words.rounds, prompt_bytes=words.prompt_bytes, seconds=words.seconds)
        finally:
            job.end()
    print(json.dumps(result, indent=1))
    return 0


def _measure(job: Job, *, rounds: int, prompt_bytes: int, seconds: float) -> dict[str, Any]:
    job.start_engine(Role.PREFILL, "p1")
    job.start_engine(Role.DECODE, "d1")
    router = job.start_router()
    until(job.ready, within_s=60)
    ports = {
        role: int(json.loads((job.directory / "endpoints" / f"{role}-0.json").read_text())["url"].rpartition(":")[2])
        for role in (Role.PREFILL, Role.DECODE)
    }
    through = Wire(job.port, HEADERS["Authorization"].removeprefix("Bearer "))
    prefill, decode = Wire(ports[Role.PREFILL], ENGINE_KEY), Wire(ports[Role.DECODE], ENGINE_KEY)

    def body_of(number: int) -> bytes:
        prompt = f"{number} " + "river stone " * (prompt_bytes // 12)
        asked = {"model": "tiny", "prompt": prompt, "max_tokens": 2, "stream": True, "ignore_eos": True}
        return json.dumps(asked, separators=(",", ":")).encode()

    def by_router(body: bytes) -> float:
        return through.ask(body)[0]

    def straight(body: bytes) -> float:
        read = read_body(body)
        first_s, answer = prefill.ask(prefill_body(read))
        transfer = read_answer(answer.partition(b"\r\n\r\n")[2]).transfer
        if transfer is None:
            raise ConnectionError("nothing was handed over")
        # the sum of the two legs: what this client does between them is not the engines' time
        return first_s + decode.ask(decode_body(read, transfer))[0]

    def alone(body: bytes) -> float:
        return decode.ask(body)[0]

    kinds: dict[str, Callable[[bytes], float]] = {"through_router": by_router, "straight_pd": straight, "alone": alone}
    names = list(kinds)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-_WARM_ROUNDS, rounds):
        for step in range(len(names)):
            name = names[(number + step) % len(names)]
            took_s = kinds[name](body_of(number * len(names) + step))
            if number >= 0:
                found[name].append(took_s * 1000)
    added = [a - b for a, b in zip(found["through_router"], found["straight_pd"], strict=True)]
    load = _load(job.port, body_of, seconds, router.pid)
    for wire in (through, prefill, decode):
        wire.close()
    return {
        "unit": "ms",
        "kind": "measured, simulated engines",
        "host": f"{platform.node()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "prompt_bytes": prompt_bytes,
        "ttft": {name: _summary(values) for name, values in found.items()},
        "added_ttft": _summary(added),
        "router_cpu": load,
    }


def _summary(values: list[float]) -> dict[str, float | int]:
    low, median, high = statistics.quantiles(values, n=4)
    return {
        "median": round(median, 3),
        "quartile_1": round(low, 3),
        "quartile_3": round(high, 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "n": len(values),
    }


def _load(port: int, body_of: Callable[[int], bytes], seconds: float, pid: int) -> dict[str, float | int]:
    """Requests of P/D, streamed, and what CPU the router spent on them."""
    end_s = time.perf_counter() + seconds
    counts = [0] * _CONNECTIONS

    def run(place: int) -> None:
        wire = Wire(port, HEADERS["Authorization"].removeprefix("Bearer "))
        while time.perf_counter() < end_s:
            wire.ask(body_of(1_000_000 * (place + 1) + counts[place]))
            counts[place] += 1
        wire.close()

    before_s = _cpu_s(pid)
    threads = [threading.Thread(target=run, args=(place,)) for place in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent_s = _cpu_s(pid) - before_s
    return {
        "requests": sum(counts),
        "cpu_s": round(spent_s, 2),
        "requests_per_cpu_s": round(sum(counts) / spent_s),
        "rss_mib": _rss_mib(pid),
    }


def _cpu_s(pid: int) -> float:
    """User and system time of a process, proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mib(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") >> 20


if __name__ == "__main__":
    sys.exit(main())
